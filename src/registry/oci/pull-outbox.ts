import { RegistryTrafficSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { parentOf } from '../../core/uid.ts'
import { fromStore } from '../../resources/faults.ts'
import { trafficWrite } from '../../resources/outbox.ts'
import { trafficBody } from '../../resources/registry/traffic.ts'
import type { Services } from '../../resources/services.ts'
import type { Write } from '../../store/store.ts'
import type { Pull, PullEventsOptions } from './pull-events.ts'

/** Writes events of pulls to the outbox, one entry each, all in one transaction. `host` is the registry host's name: their source. */
export function pullWriter(services: Services, host: string): PullEventsOptions['write'] {
  const writeOf = (pull: Pull): Write => {
    const { repo, repository, digest, tag = '', type, method, caller, timeMs, remoteAddress, userAgent } = pull
    const message = trafficBody(repo, { host, repository, digest, tag, type, method, remoteAddress, userAgent }, timeMs)
    const body = { desc: RegistryTrafficSchema, message }
    return trafficWrite(services.random, { kind: 'pull', host, subject: repo, group: parentOf(repo), body, caller, nowMs: timeMs })
  }
  return async (pulls, signal) => {
    try {
      await services.store.transact({ guards: [], writes: pulls.map(writeOf) }, signal)
    } catch (error) {
      throw fromStore(error)
    }
  }
}
