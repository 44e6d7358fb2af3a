import { EventEmitter } from 'node:events'
import { create } from '@bufbuild/protobuf'
import type { ClientContext } from '../../src/cli/client/client-command.ts'
import { createOutput } from '../../src/cli/client/output.ts'
import { createPlatformClient } from '../../src/cli/client/platform-client.ts'
import { systemClock } from '../../src/server/runtime.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { ChangeSet, newEtag } from '../../src/engine/change-set.ts'
import { groupKind } from '../../src/iam/records/groups.ts'
import { newUid } from '../../src/engine/write.ts'
import type { Resource } from '../../src/cache/records/cached-record.ts'
import type { TestServer } from '../support/test-server.ts'

/** The context of a client command, with its recorded output. */
export interface TestContext extends ClientContext {
  readonly printed: () => string
  readonly notes: string[]
  /** The number of separate writes to the output. */
  readonly writes: () => number
}

/** A stream that records what is written to it. */
export class MemorySink extends EventEmitter {
  readonly isTTY: boolean
  readonly written: string[] = []

  constructor(isTTY = false) {
    super()
    this.isTTY = isTTY
  }

  write(text: string): boolean {
    this.written.push(text)
    return true
  }
}

/** Returns the context of a client command for this caller of a server. */
export function contextOf({ config }: TestServer, token: string): TestContext {
  const sink = new MemorySink()
  const notes: string[] = []
  return {
    program: 'taproot',
    client: createPlatformClient({ baseUrl: config.baseUrl, token }),
    server: config.baseUrl,
    token: () => Promise.resolve(token),
    source: 'token',
    output: createOutput(sink, {}),
    note: (text) => void notes.push(text),
    clock: systemClock,
    notes,
    printed: () => sink.written.join(''),
    writes: () => sink.written.length,
  }
}

/** The number of groups that fit into one transaction, with their index keys. */
const groupsAtOnce = 25

/** Creates groups, many in each transaction. Resolves to their names, which are in order. */
export async function makeGroups(server: TestServer, parent: string, count: number): Promise<string[]> {
  const { services, cache, store } = server.running.engine
  const nowMs = services.clock.now()
  const names = Array.from({ length: count }, (_, at) => `group-${String(at).padStart(5, '0')}`)
  for (let at = 0; at < count; at += groupsAtOnce) {
    const changes = new ChangeSet()
    for (const name of names.slice(at, at + groupsAtOnce)) {
      // A group's record is a Group.
      const record = create(GroupSchema, { name }) as unknown as Resource
      changes.create(groupKind, {
        uid: newUid(services, parent),
        record,
        facts: { etag: newEtag(services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' },
      })
    }
    const outcome = await store.transact(changes, AbortSignal.timeout(60_000))
    if (!outcome.committed) throw new Error('the store refused')
    await cache.reached(outcome.revision, AbortSignal.timeout(60_000))
  }
  return names
}
