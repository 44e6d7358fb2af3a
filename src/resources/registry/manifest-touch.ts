import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry, Write } from '../../store/store.ts'

/** Notes in a manifest's record that somebody has come to count on it: nothing removes it for as long as it would keep a new one. */
export function touchOf({ key, value }: Entry, nowMs: number): Write {
  const record = fromBinary(ManifestRecordSchema, value)
  const createTimeMs = BigInt(Math.max(nowMs, Number(record.createTimeMs)))
  return { kind: 'put', key, value: toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { ...record, createTimeMs })) }
}
