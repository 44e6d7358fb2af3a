/**
 * A process of its own that measures memory. `memory-child.ts <database> <manifests>` records this many manifests of twelve blobs each in a repo.
 * It reads what the repo holds, and prints the growth of its memory in bytes, as JSON.
 */
import { create, toBinary } from '@bufbuild/protobuf'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { ManifestRecordSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { DigestNumbers } from '../../../src/registry/gc/digest-numbers.ts'
import { readContent } from '../../../src/registry/gc/repo-content.ts'
import { manifestKey } from '../../../src/registry/records/manifest-keys.ts'
import { createSqliteStore } from '../../../src/store/sqlite/sqlite-store.ts'

const [path = '', count = ''] = process.argv.slice(2)
const repo = trustedUid(`${'a'.repeat(40)}/${'b'.repeat(16)}`)
const never = new AbortController().signal
const store = createSqliteStore({ path, log: { debug() {}, info() {}, warn() {}, error() {} } })

/** A record with 1 kB of annotations. It shares its base layers; config and newest layers are its own. */
function record(at: number): Uint8Array {
  const digest = (text: string): { digest: string; size: bigint } => ({ digest: digestOf(Buffer.from(text)), size: 1_000n })
  const layers = Array.from({ length: 12 }, (_, layer) => digest(layer < 6 ? `base ${layer} ${at % 100}` : `layer ${layer} ${at}`))
  const annotations = { description: 'x'.repeat(1_000) }
  return toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { mediaType: 'application/json', annotations, layers, config: digest(`config ${at}`) }))
}

for (let at = 0; at < Number(count); at += 125) {
  const writes = Array.from({ length: 125 }, (_, index) => ({
    kind: 'put' as const,
    key: manifestKey(repo, digestOf(Buffer.from(`manifest ${at + index}`))),
    value: record(at + index),
  }))
  await store.transact({ guards: [], writes }, never)
}

const inUse = (): number => {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
const before = inUse()
const digests = new DigestNumbers()
const content = await readContent({ store }, { repo, digests }, never)
const grownBytes = inUse() - before
// Keeps both in use until here.
process.stdout.write(JSON.stringify({ manifests: content.manifests.size, first: digests.text(0), grownBytes }))
await store.close()
