import { retry } from '../../base/timing.ts'
import { KubeError, type KubeApi, type KubeErrorReason, type KubeObject, type ObjectDraft } from '../../kubernetes/kube-api.ts'
import { objectTypes } from '../../kubernetes/object-types.ts'
import { createSecretData, secretTypeOf, type SecretSources } from './secret-content.ts'
import { planSecret, type FoundSecret, type SecretAction, type SecretData } from './secret-plan.ts'
import type { Wanted, WantedSecret } from './wanted.ts'

/** Label of Secrets that this command created. The command renews only those. */
export const madeByLabel = { 'taproot.dev/made-by': 'init-secrets' } as const

/** Options of the command. */
export interface InitSecretsOptions extends SecretSources {
  readonly kube: Pick<KubeApi, 'get' | 'create' | 'replace'>
  /** How long to retry if the API server does not answer, or does not know this command's permissions yet, in milliseconds. */
  readonly timeoutMs: number
  /** Called with the name of each Secret and the action that was taken. */
  readonly report: (name: string, action: SecretAction) => void
}

/** Errors after which the command retries, because they may be temporary. After a conflicting change, the Secret is read again. */
const passing: ReadonlySet<KubeErrorReason> = new Set(['unavailable', 'throttled', 'forbidden', 'unauthorized', 'conflict', 'already_exists'])
const retryMs = 500

interface Secret {
  readonly found: FoundSecret
  readonly resourceVersion: string
}

/**
 * Creates missing Secrets, and renews certificates that expire soon, in the order of the list, authorities first. A second run changes
 * nothing. Concurrent runs use each other's Secrets. Rejects with KubeError if the API server refuses, or with the signal's reason.
 */
export async function initSecrets(wanted: Wanted, options: InitSecretsOptions, signal: AbortSignal): Promise<void> {
  const authorities = new Map<string, SecretData>()
  const ordered = [...wanted.secrets].sort((left, right) => rank(left) - rank(right))
  const deadline = options.clock.now() + options.timeoutMs
  for (const secret of ordered) {
    const data = await repeated(() => bringAbout(secret, { wanted, authorities, options }, signal), { options, deadline, signal })
    if (secret.kind === 'authority') authorities.set(secret.name, data)
  }
}

function rank({ kind }: WantedSecret): number {
  return kind === 'certificate' ? 1 : 0
}

interface SecretContext {
  readonly wanted: Wanted
  readonly authorities: ReadonlyMap<string, SecretData>
  readonly options: InitSecretsOptions
}

/** Creates, renews or keeps one Secret. Returns its data. */
async function bringAbout(secret: WantedSecret, { wanted, authorities, options }: SecretContext, signal: AbortSignal): Promise<SecretData> {
  const { namespace } = wanted
  const { kube, clock, report } = options
  const there = await read(kube, { namespace, name: secret.name }, signal)
  const authority = secret.kind === 'certificate' ? authorities.get(secret.authority) : undefined
  const action = planSecret(secret, there?.found, { nowMs: clock.now(), authority: authority?.['tls.crt'] })
  let data = there?.found.data ?? {}
  if (action !== 'keep') {
    data = await createSecretData(secret, authority, options)
    const draft = draftOf(secret, wanted, { data, resourceVersion: there?.resourceVersion })
    await (action === 'make' ? kube.create(objectTypes.secret, draft, signal) : kube.replace(objectTypes.secret, draft, signal))
  }
  report(secret.name, action)
  return data
}

async function read(
  kube: InitSecretsOptions['kube'],
  ref: { readonly namespace: string; readonly name: string },
  signal: AbortSignal,
): Promise<Secret | undefined> {
  const object = await kube.get(objectTypes.secret, ref, signal)
  if (object === undefined) return undefined
  const { labels = {}, resourceVersion } = object.metadata
  const isOurs = Object.entries(madeByLabel).every(([label, value]) => labels[label] === value)
  return { found: { data: dataOf(object), isOurs }, resourceVersion }
}

function dataOf(secret: KubeObject): SecretData {
  const data = (secret['data'] ?? {}) as Readonly<Record<string, string>> // a cast: the API server stores Secrets in this form
  return Object.fromEntries(Object.entries(data).map(([entry, base64]) => [entry, Buffer.from(base64, 'base64')]))
}

function draftOf(secret: WantedSecret, { namespace, labels }: Wanted, content: { data: SecretData; resourceVersion: string | undefined }): ObjectDraft {
  const { data, resourceVersion } = content
  return {
    metadata: { namespace, name: secret.name, labels: { ...labels, ...madeByLabel }, ...(resourceVersion === undefined ? {} : { resourceVersion }) },
    type: secretTypeOf(secret),
    data: Object.fromEntries(Object.entries(data).map(([entry, bytes]) => [entry, bytes.toString('base64')])),
  }
}

function repeated<T>(work: () => Promise<T>, limits: { options: InitSecretsOptions; deadline: number; signal: AbortSignal }): Promise<T> {
  const { options, deadline, signal } = limits
  const waitMs = (error: unknown): number | undefined =>
    error instanceof KubeError && passing.has(error.reason) && options.clock.now() <= deadline ? (error.retryAfterMs ?? retryMs) : undefined
  return retry(work, { waitMs, signal })
}
