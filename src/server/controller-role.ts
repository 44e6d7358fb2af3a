import { errorText } from '../base/error-text.ts'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import type { Registry } from 'prom-client'
import type { PlatformTokens } from '../auth/tokens/platform-token.ts'
import { setOf } from '../base/capability.ts'
import type { Log } from '../base/log.ts'
import { randomHex, type Clock } from '../base/runtime.ts'
import { roleCapabilities } from '../gen/roles.ts'
import { createKubeClient, type KubeClient } from '../kubernetes/client/kube-client.ts'
import type { KubeEndpoint } from '../kubernetes/client/kube-endpoint.ts'
import { startController, type ControllerOptions } from '../kubernetes/controller.ts'
import { KubeError } from '../kubernetes/kube-api.ts'
import { objectTypes } from '../kubernetes/object-types.ts'
import { accountDirectory } from './cluster-endpoint.ts'
import { createControllerMetrics } from './metrics/controller-metrics.ts'
import type { Config } from '../config/config.ts'
import type { Engine } from './engine.ts'
import { systemRandom } from './runtime.ts'
import { SettingError, withSetting } from '../config/setting-error.ts'

/** How long the start waits before it asks an API server again that did not answer, in milliseconds. */
const retryMs = 1_000

/** What the role is made of. */
export interface ControllerRoleOptions {
  readonly config: Config
  readonly endpoint: KubeEndpoint
  readonly engine: Engine
  readonly tokens: PlatformTokens
  readonly registry: Registry
  readonly log: Log
  readonly auditLog: Log
  readonly clock: Clock
}

/** The running role. */
export interface ControllerRole {
  /** Resolves when all objects have been read; rejects with the signal's reason. */
  synced(signal: AbortSignal): Promise<void>
  /** Resolves when its work has ended, after the signal that it was started with. */
  readonly ended: Promise<void>
}

/** The pod's own namespace; `default` where this is no pod. */
function ownNamespace({ kubernetes }: Config): string {
  if (kubernetes.kubeconfig !== undefined) return 'default'
  return withSetting('kubernetes.lease.namespace', accountDirectory, () => readFileSync(`${accountDirectory}/namespace`, 'utf8')).trim()
}

/** The cluster's name: as configured, or what no other cluster has. Waits for an API server that does not answer. */
async function clusterId({ config, log }: ControllerRoleOptions, api: KubeClient, signal: AbortSignal): Promise<string> {
  if (config.kubernetes.clusterId !== undefined) return config.kubernetes.clusterId
  for (;;) {
    try {
      const found = await api.get(objectTypes.namespace, { name: 'kube-system' }, signal)
      if (found !== undefined) return found.metadata.uid
      log.warn('the cluster has no namespace kube-system yet')
    } catch (error) {
      if (!(error instanceof KubeError) || signal.aborted) throw error
      log.warn('the Kubernetes API server does not answer while starting', { fault: error.fault, error: errorText(error) })
    }
    await delay(retryMs, undefined, { signal })
  }
}

/** All that a pull secret is good for, whatever else its identity may do. */
const pullCapabilities = setOf(roleCapabilities['registry.pull'] ?? [])

/** Signs registry tokens, good for pulls alone, for identities that service accounts stand for. */
export function pullTokens({ config, tokens }: Pick<ControllerRoleOptions, 'config' | 'tokens'>): NonNullable<ControllerOptions['pullSecrets']> {
  const registryHost = config.registry.host
  return {
    registryHost,
    mint: (identityUid, managedBy) =>
      tokens.mint({
        identityUid,
        audiences: [registryHost],
        act: { issuer: 'kubernetes', subject: managedBy, audience: registryHost },
        narrowing: { capabilities: pullCapabilities },
      }),
  }
}

/** Starts the controller, which works until `signal` aborts. Rejects with SettingError where the kubeconfig is none, or the signal's reason. */
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
    if (issuer === undefined) throw new SettingError('kubernetes.issuer', undefined, 'the controller needs it')
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
