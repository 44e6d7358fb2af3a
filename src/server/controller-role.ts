import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { type Registry, Counter, Gauge, Histogram } from 'prom-client'
import type { PlatformTokens } from '../auth/access-tokens/platform-token.ts'
import { setOf } from '../base/capability.ts'
import { retry } from '../base/timing.ts'
import { errorText } from '../base/error-text.ts'
import type { AuditTrail } from '../base/audit-line.ts'
import type { Log } from '../base/log.ts'
import { randomHex, type Clock } from '../base/runtime.ts'
import type { Config } from '../config/config.ts'
import { SettingError, withSetting } from '../config/setting-error.ts'
import { roleCapabilities } from '../gen/roles.ts'
import { createKubeClient, type KubeClient } from '../kubernetes/client/kube-client.ts'
import type { KubeEndpoint } from '../kubernetes/client/kube-endpoint.ts'
import { startController, type ControllerOptions, type ControllerObserver } from '../kubernetes/controller.ts'
import { KubeError } from '../kubernetes/kube-api.ts'
import { objectTypes } from '../kubernetes/object-types.ts'
import type { WorkQueueObserver } from '../kubernetes/runtime/work-queue.ts'
import { accountDirectory } from './cluster-endpoint.ts'
import type { Engine } from './engine.ts'
import { systemRandom } from './runtime.ts'

/** Histogram buckets in seconds: from a reconcile without changes to a slow API server. */
const buckets = [0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 30]

/** Registers the metrics of the controller, `taproot_kube_*` (docs/operations.md). */
export function createControllerMetrics(registry: Registry): ControllerObserver {
  const registers = [registry]
  const leader = new Gauge({ name: 'taproot_kube_leader', help: '1 in the active controller', registers })
  const reconciled = new Counter({
    name: 'taproot_kube_reconciled_total',
    help: 'Objects handled, by the reason of their Ready condition; "released" for objects that the controller released',
    labelNames: ['kind', 'reason'],
    registers,
  })
  const written = new Counter({ name: 'taproot_kube_records_written_total', help: 'Records written for objects', labelNames: ['kind'], registers })
  const dropped = new Counter({ name: 'taproot_kube_events_dropped_total', help: 'Kubernetes Events that were not written', registers })
  const unmirrored = new Gauge({ name: 'taproot_kube_unmirrored_records', help: 'Records without a mirror because of the limit', registers })
  const abandoned = new Gauge({ name: 'taproot_kube_abandoned_records', help: 'Records whose Kubernetes object is missing', registers })
  const informers = new Gauge({
    name: 'taproot_kube_informer_watching',
    help: '1 while the cache of a type follows the API server',
    labelNames: ['type'],
    registers,
  })
  const queue = queueMetrics(registry)
  return {
    leading: (leads) => leader.set(leads ? 1 : 0),
    abandoned: (count) => abandoned.set(count),
    reconciled(kind, applied) {
      reconciled.inc({ kind, reason: applied.conditionStatus?.reason ?? 'released' })
      if (applied.written) written.inc({ kind })
    },
    objects: queue('objects'),
    mirrors: queue('mirrors'),
    pullSecrets: queue('pull_secrets'),
    grants: queue('grants'),
    informers: {
      state: (type, state) => informers.set({ type: type.plural }, state.is === 'watching' ? 1 : 0),
      listed: () => undefined,
    },
    eventsDropped: (count) => dropped.inc(count),
    unmirrored: (count) => unmirrored.set(count),
  }
}

function queueMetrics(registry: Registry): (queue: string) => WorkQueueObserver {
  const shared = { labelNames: ['queue'], registers: [registry] }
  const depth = new Gauge({ name: 'taproot_kube_queue_depth', help: 'Objects that wait for a worker', ...shared })
  const waited = new Histogram({ name: 'taproot_kube_queue_wait_seconds', help: 'Time from when an object is due until a worker takes it', buckets, ...shared })
  const took = new Histogram({ name: 'taproot_kube_reconcile_duration_seconds', help: 'Time to handle an object', buckets, ...shared })
  const failed = new Counter({ name: 'taproot_kube_reconcile_failures_total', help: 'Failed attempts, which are repeated', ...shared })
  return (queue) => ({
    depth: (keys) => depth.set({ queue }, keys),
    started: (waitedMs) => waited.observe({ queue }, waitedMs / 1_000),
    finished(outcome, tookMs) {
      took.observe({ queue }, tookMs / 1_000)
      if (outcome === 'failed') failed.inc({ queue })
    },
    retry: () => undefined,
  })
}

/** Delay at the start before another request to an API server that did not answer, in milliseconds. */
const retryMs = 1_000

/** Dependencies of the controller role. */
export interface ControllerRoleOptions {
  readonly config: Config
  readonly endpoint: KubeEndpoint
  readonly engine: Engine
  readonly tokens: PlatformTokens
  readonly registry: Registry
  readonly log: Log
  readonly auditLog: AuditTrail
  readonly clock: Clock
}

/** The running controller. */
export interface ControllerRole {
  /** Resolves once all objects have been read. Rejects with the signal's reason. */
  synced(signal: AbortSignal): Promise<void>
  /** Resolves when the signal given at the start has aborted and the work has ended. */
  readonly ended: Promise<void>
}

/** Returns the pod's namespace; `default` outside a pod. */
function ownNamespace({ kubernetes }: Config): string {
  if (kubernetes.kubeconfig !== undefined) return 'default'
  return withSetting('kubernetes.lease.namespace', accountDirectory, () => readFileSync(`${accountDirectory}/namespace`, 'utf8')).trim()
}

/** Returns the configured id of the cluster, or else one derived from the cluster. Retries while the API server does not answer. */
async function clusterId({ config, log }: ControllerRoleOptions, api: KubeClient, signal: AbortSignal): Promise<string> {
  if (config.kubernetes.clusterId !== undefined) return config.kubernetes.clusterId
  const read = async (): Promise<string> => {
    const found = await api.get(objectTypes.namespace, { name: 'kube-system' }, signal)
    if (found === undefined) throw new KubeError('unavailable', 'the cluster has no namespace kube-system yet')
    return found.metadata.uid
  }
  const waitMs = (error: unknown): number | undefined => {
    if (!(error instanceof KubeError)) return undefined
    log.warn('the Kubernetes API server does not answer while starting', { fault: error.reason, error: errorText(error) })
    return retryMs
  }
  return retry(read, { waitMs, signal })
}

/** The only capabilities of a pull Secret's token, even if its identity has more. */
const pullCapabilities = setOf(roleCapabilities['registry.pull'] ?? [])

/** Returns a function that signs registry tokens for the identities of service accounts. The tokens allow only pulls. */
export function pullTokens({ config, tokens }: Pick<ControllerRoleOptions, 'config' | 'tokens'>): NonNullable<ControllerOptions['pullSecrets']> {
  const registryHost = config.registry.host
  return {
    registryHost,
    mint: (identityUid, managedBy) =>
      tokens.mint({
        identityUid,
        audiences: [registryHost],
        act: { issuer: 'kubernetes', subject: managedBy, audience: registryHost },
        restrictions: { capabilities: pullCapabilities },
      }),
  }
}

/**
 * Starts the controller, which runs until `signal` aborts. Rejects with SettingError if the kubeconfig is invalid, or with the signal's
 * reason.
 */
export async function startControllerRole(options: ControllerRoleOptions, signal: AbortSignal): Promise<ControllerRole> {
  const { config, endpoint, engine, registry, log, clock } = options
  const { kubernetes } = config
  const userAgent = 'taproot-controller'
  const client = (): KubeClient =>
    withSetting('kubernetes.kubeconfig', kubernetes.kubeconfig ?? accountDirectory, () => createKubeClient({ endpoint, userAgent, random: systemRandom }))
  const [api, leaseApi] = [client(), client()]
  const close = async (): Promise<void> => void (await Promise.all([api.close(), leaseApi.close()]))
  try {
    const own = ownNamespace(config)
    const { issuer } = kubernetes
    if (issuer === undefined) throw new SettingError('kubernetes.issuer', undefined, 'the role controller needs this setting')
    const cluster = { id: await clusterId(options, api, signal), issuer }
    const controller = startController(
      {
        api,
        leaseApi,
        services: engine.services,
        cluster,
        mirror: { ...kubernetes.mirror, namespace: kubernetes.mirror.namespace ?? own },
        lease: { namespace: kubernetes.lease.namespace ?? own, name: kubernetes.lease.name },
        ...(kubernetes.pullSecrets.enabled ? { pullSecrets: pullTokens(options) } : {}),
        instance: `${hostname().slice(0, 60)}-${randomHex(systemRandom, 4)}`,
        clock,
        random: systemRandom,
        log,
        auditLog: options.auditLog,
        observer: createControllerMetrics(registry),
      },
      signal,
    )
    return { synced: (waiting) => orAborted(controller.allSynced, waiting), ended: controller.ended.then(close) }
  } catch (error) {
    await close()
    throw error
  }
}

async function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  const { promise, reject } = Promise.withResolvers<never>()
  const stop = (): void => reject(signal.reason as Error)
  signal.addEventListener('abort', stop, { once: true })
  await Promise.race([work, promise]).finally(() => signal.removeEventListener('abort', stop))
}
