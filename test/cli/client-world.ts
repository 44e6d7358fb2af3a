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

/** A client command's surroundings, and what was printed in them. */
export interface TestContext extends ClientContext {
  readonly printed: () => string
  readonly notes: string[]
  /** How many results were written one after the other. */
  readonly writes: () => number
}

/** A stream that keeps what is written to it. */
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

/** What a client command works with, as this caller of a server. */
export function contextOf({ config }: TestServer, token: string): TestContext {
  const sink = new MemorySink()
  const notes: string[] = []
  return {
    program: 'taproot',
    client: createPlatformClient({ baseUrl: config.baseUrl, token }),
    token: () => token,
    renewsToken: false,
    output: createOutput(sink, {}),
    note: (text) => void notes.push(text),
    clock: systemClock,
    notes,
    printed: () => sink.written.join(''),
    writes: () => sink.written.length,
  }
}

/** As many as a transaction holds, with their index keys. */
const groupsAtOnce = 25

/** Groups in one transaction at a time: more than a test could make one by one. Resolves to their names, which are in order. */
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
    const outcome = await store.transact(changes, AbortSignal.timeout(10_000))
    if (!outcome.committed) throw new Error('the store refused')
    await cache.reached(outcome.revision, AbortSignal.timeout(10_000))
  }
  return names
}
