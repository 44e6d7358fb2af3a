import { DatabaseSync } from 'node:sqlite'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toBinary } from '@bufbuild/protobuf'
import { expect, onTestFinished, test } from 'vitest'
import { EnvelopeSchema } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { envelopeBytes } from '../../src/engine/record-codec.ts'
import { recordOfBytes } from '../../src/cache/records/record-factory.ts'
import { storeRevision } from '../../src/store/store.ts'
import { freshName, makeOrganisation, ok, startTestServer } from '../support/test-server.ts'
import { indexOf, newUid, picker, recordOf } from './records.ts'

const record = recordOf({ kind: 'Group', uid: newUid(picker(1)), name: 'some-name', createMs: 1_700_000_000_000, updateMs: 1_700_000_000_001, filters: {} }, 1)
const stored = Buffer.from(envelopeBytes(record.envelope))

function read(bytes: Uint8Array): unknown {
  const found = recordOfBytes(indexOf('Group'), { uid: record.uid, bytes, revision: storeRevision(1) })
  return [found.message, found.etag, found.createMs, found.updateMs, found.managedBy]
}

test('a stored record with one flipped bit is never read as another record', () => {
  const whole = read(stored)
  let refused = 0
  for (let bit = 0; bit < stored.length * 8; bit++) {
    const flipped = Buffer.from(stored)
    flipped.writeUInt8(flipped.readUInt8(bit >>> 3) ^ (1 << (bit & 7)), bit >>> 3)
    try {
      expect(read(flipped), `bit ${bit}`).toEqual(whole)
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'WireError') throw error
      refused += 1
    }
  }
  // A flipped bit may only turn the tag of the checksum itself into an unknown field.
  expect(refused).toBeGreaterThanOrEqual(stored.length * 8 - 8)
})

test('a record without a checksum is readable; the checksum only adds a field that earlier versions skip', () => {
  const { checksum: _checksum, ...bare } = record.envelope
  const older = toBinary(EnvelopeSchema, bare)
  expect(read(older)).toEqual(read(stored))
  expect(stored.subarray(0, -5)).toEqual(Buffer.from(older))
  // Field 8 with four bytes: protobuf readers skip unknown fields.
  expect(stored.at(-5)).toBe((8 << 3) | 5)
})

test('the checksum is the last field, even after a field with a higher number, and covers it', () => {
  const owned = Buffer.from(envelopeBytes({ ...record.envelope, managedBy: 'cluster/namespace/name', ownedFields: ['name', 'description'] }))
  expect(owned.at(-5)).toBe((8 << 3) | 5)
  expect(read(owned)).toEqual([expect.anything(), record.etag, record.createMs, record.updateMs, 'cluster/namespace/name'])
  owned.write('D', owned.indexOf('description'))
  expect(() => read(owned)).toThrow('checksum')
})

test('a server ignores a record with a flipped bit, and logs its name', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'taproot-flip-'))
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }))
  const first = await startTestServer({ dataDir })
  const { group, token } = await makeOrganisation(first)
  const name = freshName('repo')
  const uid = String(ok(await first.rest.call('CreateRepo', { parent: group, repo: { name } }, { token }))['uid'])
  await first.stop()
  const { path } = first.config.store.sqlite
  const database = new DatabaseSync(path)
  const value = Buffer.from(database.prepare('SELECT value FROM kv WHERE key = ?').get(`r/Repo/${uid}`)?.['value'] as Uint8Array)
  const at = value.indexOf(name)
  expect(at).toBeGreaterThan(0)
  value.writeUInt8(value.readUInt8(at) ^ 1, at)
  database.prepare('UPDATE kv SET value = ? WHERE key = ?').run(value, `r/Repo/${uid}`)
  database.close()
  const second = await startTestServer({ dataDir })
  onTestFinished(() => second.stop())
  const answer = await second.rest.call('GetRepo', { uid }, { token: await second.operatorToken() })
  expect(answer.code).toBe(5)
  expect(second.logs).toContainEqual(
    expect.objectContaining({
      level: 'error',
      message: 'a stored record cannot be read',
      fields: { key: `r/Repo/${uid}`, error: 'WireError: the checksum does not match the stored bytes' },
    }),
  )
})
