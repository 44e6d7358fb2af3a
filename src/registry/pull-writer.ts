import { parentOf } from '../base/uid.ts'
import { RegistryTrafficSchema } from '../gen/taproot/store/v1/registry_pb.ts'
import { trafficWrite } from '../engine/outbox.ts'
import { trafficBody } from './records/traffic.ts'
import type { Services } from '../engine/services.ts'
import type { Pull, PullEventsOptions } from './oci/pull-events.ts'

/** Writes the events of pulls to the outbox, in one transaction. */
export function pullWriter(services: Services, host: string): PullEventsOptions['write'] {
  return async (pulls, signal) => {
    const writes = pulls.map((pull) =>
      trafficWrite(services.random, {
        kind: 'pull',
        host,
        subject: pull.repo,
        group: parentOf(pull.repo),
        body: { desc: RegistryTrafficSchema, message: bodyOf(pull, host) },
        caller: pull.caller,
        nowMs: pull.timeMs,
      }),
    )
    await services.store.transact({ guards: [], writes }, signal)
  }
}

function bodyOf(pull: Pull, host: string): ReturnType<typeof trafficBody> {
  const { repo, repository, digest, tag = '', type, method, timeMs, remoteAddress, userAgent } = pull
  return trafficBody(repo, { host, repository, digest, tag, type, method, remoteAddress, userAgent }, timeMs)
}
