import type { LookupFunction } from 'node:net'
import { Counter, Gauge, type Registry } from 'prom-client'
import { createResolverLookup } from '../auth/resolver-lookup.ts'
import { createSafeFetch } from '../auth/safe-fetch.ts'
import { createNetworks } from '../base/client-address.ts'
import type { Config } from '../config/config.ts'
import type { ReloadedFiles } from '../config/files/reloaded-files.ts'
import { createEventSigner, Dispatcher, sendEvent, withoutForeignEmail, type DispatchObserver } from '../events/index.ts'
import type { Engine } from './engine.ts'

/** How a process reaches the sinks of subscriptions. */
export interface SinkOptions {
  /** Resolves their host names; by default with the system's name servers. */
  readonly lookup?: LookupFunction
  /** Time for a sink to answer, including the DNS query, in milliseconds. */
  readonly timeoutMs?: number
}

/** Dependencies of event delivery. */
export interface DeliveryOptions {
  readonly config: Config
  readonly files: ReloadedFiles
  readonly engine: Engine
  readonly metrics: Registry
  readonly sinks?: SinkOptions | undefined
}

/** Event delivery, which runs in the leader. */
export interface Delivery {
  readonly dispatcher: Dispatcher
  /** Closes idle connections to sinks, and the event log. */
  close(): Promise<void>
}

/** Creates event delivery. Throws SettingError if the CA certificates for sinks cannot be read. */
export function createDelivery({ config, files, engine, metrics, sinks = {} }: DeliveryOptions): Delivery {
  const { networks, caFile } = config.events
  const ca = caFile === undefined ? undefined : files.read({ pem: { setting: 'events.caFile', path: caFile, kind: 'authorities' } })
  const fetch = createSafeFetch({
    timeoutMs: sinks.timeoutMs ?? 10_000,
    lookup: sinks.lookup ?? createResolverLookup(),
    networks: createNetworks(networks),
    ...(ca === undefined ? {} : { extraCa: () => ca.current.pem.toString('utf8') }),
  })
  const { clock, random } = engine.services
  const signer = createEventSigner({ issuer: config.baseUrl, keys: engine.eventKeys, clock, random })
  const dispatcher = new Dispatcher({
    services: engine.services,
    observer: createDispatchMetrics(metrics),
    requestOf: (event, group) => signer.requestOf(withoutForeignEmail(event, engine.cache.tables), group),
    standardRequestOf: (event, secrets) => signer.standardRequestOf(withoutForeignEmail(event, engine.cache.tables), secrets),
    send: (sink, request, signal) => sendEvent(fetch, sink, { request, signal }),
  })
  return {
    dispatcher,
    async close() {
      engine.services.eventLog.close()
      await fetch.close()
    },
  }
}

/** Registers `taproot_event_deliveries_total` by outcome, `taproot_subscriptions_failing` and `taproot_event_oldest_waiting_seconds`. */
function createDispatchMetrics(registry: Registry): DispatchObserver {
  const registers = [registry]
  const deliveries = new Counter({
    name: 'taproot_event_deliveries_total',
    help: 'Attempts to deliver an event to a sink, by outcome: delivered, failed (tried again), dead (given up) or expired',
    labelNames: ['outcome'],
    registers,
  })
  const failing = new Gauge({ name: 'taproot_subscriptions_failing', help: 'Subscriptions whose sink fails, in the leader', registers })
  const oldest = new Gauge({ name: 'taproot_event_oldest_waiting_seconds', help: 'Age of the oldest event that waits for delivery', registers })
  return {
    delivery: (outcome) => deliveries.inc({ outcome }),
    state(state) {
      failing.set(state.failing)
      oldest.set(state.oldestWaitingMs / 1000)
    },
  }
}
