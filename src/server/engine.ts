import { join } from 'node:path'
import { createAccountChecks } from '../auth/account-checks.ts'
import { createPageKeys } from '../auth/keys/page-keys.ts'
import type { RotatingKeys } from '../auth/keys/rotating-keys.ts'
import { createKeyring, type Keyring } from '../auth/keys/sealing.ts'
import { createSigningKeys, type SigningKeys } from '../auth/keys/signing-keys.ts'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import { personUid } from '../auth/oidc/issuer-name.ts'
import type { ConfiguredIssuer } from '../auth/oidc/issuer-source.ts'
import { createPkceLook } from '../auth/oidc/pkce-look.ts'
import type { SafeFetch } from '../auth/safe-fetch.ts'
import { GrantsIndex } from '../authz/grants-index.ts'
import type { AuditReader } from '../engine/audit-query.ts'
import { createNetworks } from '../base/client-address.ts'
import { errorText } from '../base/error-text.ts'
import type { Digest } from '../base/digest.ts'
import { DomainError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import type { PageKey } from '../base/page-token.ts'
import type { Clock, Random } from '../base/runtime.ts'
import type { Tracing } from '../base/tracing.ts'
import type { Uid } from '../base/uid.ts'
import { retry } from '../base/timing.ts'
import { RecordCache } from '../cache/record-cache.ts'
import {
  ContentsJob,
  LifeCycleDeprecation,
  ScannerReports,
  Segments,
  VulnerabilityCounts,
  imageFacts,
  recordedVulnerabilities,
  vulnerabilitiesIn,
} from '../contents/index.ts'
import { Catalogues, Feeds } from '../catalogue/index.ts'
import { storedKinds } from '../domains/kinds.ts'
import type { Config, LimitConfig } from '../config/config.ts'
import { RecentDeliveries } from '../engine/log/recent-deliveries.ts'
import { SharedLog } from '../engine/log/shared-log.ts'
import { eventLifeMs } from '../engine/log/outbox-keys.ts'
import { Quotas } from '../engine/quota/quotas.ts'
import type { ContentSource, PullTrials, ResourceSettings, Services } from '../engine/services.ts'
import { StoreCascader } from '../engine/jobs/cascader.ts'
import { createEventKeys, type EventKeys } from '../events/index.ts'
import { builtInRoleRecords } from '../iam/index.ts'
import { Collector, createPullTrials, createRegistryKeys, type RegistryKeys, type Upstream, type HistoryRetention, UpstreamError } from '../registry/index.ts'
import { readEncryptionKey } from './read-encryption-key.ts'
import { assertStoreFormat } from './store-format.ts'
import { StoreError, type Revision, type Store } from '../store/store.ts'

/** Resolves as `asked` does. Rejects with code 14 if the upstream failed. */
async function answered<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked
  } catch (error) {
    if (error instanceof UpstreamError)
      throw new DomainError(14, 'the upstream storage is unreachable; try again', { cause: error, details: { retryAfterMs: 5_000 } })
    throw error
  }
}

async function readBlob(upstream: Upstream, { repo, digest, maxBytes }: { repo: Uid; digest: Digest; maxBytes: number }, signal: AbortSignal) {
  const stream = await upstream.readBlob(repo, { digest }, signal)
  if (stream === undefined) return undefined
  if (stream.size > maxBytes) {
    stream.body.destroy()
    return undefined
  }
  const pieces: Buffer[] = []
  for await (const piece of stream.body) pieces.push(Buffer.from(piece as Buffer)) // a stream without encoding, whose pieces may be freed
  return Buffer.concat(pieces)
}

/** Returns the parts of the upstream that records need. */
export function contentSource(upstream: Upstream): ContentSource {
  return {
    holdsManifest: (repo, digest, signal) => answered(upstream.hasManifest(repo, digest, signal)),
    readBlob: (repo, blob, signal) => answered(readBlob(upstream, { repo, ...blob }, signal)),
  }
}

/** Returns the trials of pull policies. They are made for the first one: most processes have none. */
function pullTrials(services: () => Services, options: { readonly upstream: Upstream } & Pick<EngineOptions, 'trustedRoot'>): PullTrials {
  const { upstream, trustedRoot = () => undefined } = options
  let made: PullTrials | undefined
  return {
    verdicts: (pull, sets, signal) => answered((made ??= createPullTrials({ services: services(), upstream, trustedRoot })).verdicts(pull, sets, signal)),
    close: () => made?.close() ?? Promise.resolve(),
  }
}

const hourMs = 3_600_000

/** The store, the records in memory, the keys, and the services for handlers. */
export interface Engine {
  readonly store: Store
  readonly cache: RecordCache
  readonly signingKeys: SigningKeys
  readonly eventKeys: EventKeys
  readonly pageKeys: RotatingKeys<PageKey>
  /** Undefined if this process neither serves the registry host nor makes tokens for it. */
  readonly registryKeys: RegistryKeys | undefined
  readonly keyring: Keyring
  /** How much of tag histories is kept. */
  readonly history: HistoryRetention
  /** The garbage collector; undefined if no upstream is configured. */
  readonly collector: Collector | undefined
  /** Undefined where no upstream is configured: it keeps the catalogues. */
  readonly catalogues: Catalogues | undefined
  /** What images contain, and the job that reads them. Both are undefined where no upstream is configured. */
  readonly imageContents: Segments | undefined
  readonly contentsJob: ContentsJob | undefined
  readonly vulnerabilityCounts: VulnerabilityCounts
  /** Undefined unless tags follow their life cycles. */
  readonly lifeCycles: LifeCycleDeprecation | undefined
  readonly feeds: Feeds
  readonly services: Services
}

/** Dependencies and settings of an engine. */
export interface EngineOptions {
  readonly config: Config
  readonly store: Store
  readonly cache: RecordCache
  /** Undefined if none is configured. */
  readonly upstream: Upstream | undefined
  /** True if the process verifies or makes registry tokens; false if absent. */
  readonly usesRegistryKeys?: boolean
  /** The development issuer; only in role `dev`. */
  readonly devIssuer?: DevIssuer | undefined
  /** For URLs that tenants configure, and for cloud providers. */
  readonly fetch: SafeFetch
  /** The audit events that are kept; undefined where absent. */
  readonly audit?: AuditReader | undefined
  /** Issuers from the configuration. */
  readonly issuers: readonly ConfiguredIssuer[]
  /** Returns the trusted root for signatures; undefined without one. */
  readonly trustedRoot?: (() => Buffer | undefined) | undefined
  readonly log: Log
  readonly tracing?: Tracing | undefined
  readonly clock: Clock
  readonly random: Random
}

/** Creates the cache of the store's records, without starting it. */
export function createRecordCache(store: Store, log: Log): RecordCache {
  return new RecordCache({ store, kinds: [...storedKinds.values()].map((kind) => kind.index), builtIns: builtInRoleRecords, log })
}

/** Delay at the start before another request to a store that did not answer, in milliseconds. */
const retryMs = 500

/**
 * Runs a step of the start, and repeats it while the store does not answer. So a store that starts late does not end the process. Each
 * step reads before it writes.
 */
function untilAvailable<T>(step: () => Promise<T>, log: Log, signal: AbortSignal): Promise<T> {
  const waitMs = (error: unknown): number | undefined => {
    if (!(error instanceof StoreError) || (error.kind !== 'unavailable' && error.kind !== 'indeterminate')) return undefined
    log.warn('the store does not answer while starting', { error: errorText(error) })
    return retryMs
  }
  return retry(step, { waitMs, signal })
}

/** Resolves once the cache contains a commit. Waits as long as the cache does not follow the store. */
function remembered(cache: RecordCache, revision: Revision, signal: AbortSignal): Promise<void> {
  const waitMs = (error: unknown): number | undefined => (error instanceof StoreError && error.kind === 'unavailable' ? retryMs : undefined)
  return retry(async () => (cache.revision < revision ? cache.barrier(signal) : undefined), { waitMs, signal })
}

/** Loads the store's records into memory and opens its keys. Rejects with StoreError, SealingError, or the signal's reason. */
export async function startEngine(options: EngineOptions, signal: AbortSignal): Promise<Engine> {
  const { config, store, cache, upstream, fetch, log, tracing, clock, random } = options
  const keyEncryptionKey = await readEncryptionKey(config, random)
  await cache.start(signal)
  const patiently = <T>(step: () => Promise<T>): Promise<T> => untilAvailable(step, log, signal)
  await patiently(() => assertStoreFormat(store, signal))
  const keyring = await patiently(() => createKeyring({ store, keyEncryptionKey, random }, signal))
  const signingKeys = await patiently(() => createSigningKeys({ store, keyring, clock }, signal))
  const eventKeys = await patiently(() => createEventKeys({ store, keyring, clock }, signal))
  const pageKeys = await patiently(() => createPageKeys({ store, keyring, clock, random }, signal))
  const usesKeys = options.usesRegistryKeys === true && upstream !== undefined
  const registryKeys = usesKeys ? await patiently(() => createRegistryKeys({ store, keyring, clock, random }, signal)) : undefined
  const grants = new GrantsIndex(cache)
  const directory = join(config.dataDir, 'catalogues')
  const catalogues = upstream === undefined ? undefined : new Catalogues({ store, cache, upstream, directory, clock, random, log, tracing })
  const contents = upstream === undefined ? undefined : { store, cache, upstream, directory: join(config.dataDir, 'contents'), clock, random, log }
  const imageContents = contents === undefined ? undefined : new Segments(contents)
  const feeds = new Feeds({ feeds: config.catalogues.feeds, store, cache, catalogues, fetch, clock, random, log })
  const services: Services = {
    store,
    cache,
    grants,
    cascader: new StoreCascader({ store, cache, kinds: storedKinds, log }),
    quotas: new Quotas({ store, cache }),
    clock,
    random,
    log,
    tracing,
    pageKeys: { current: () => pageKeys.current(), find: (id, callSignal) => pageKeys.lookup(id, callSignal) },
    keyring,
    deniesPkce: createPkceLook(fetch, options.issuers),
    settings: settingsOf(options),
    eventLog: new SharedLog({ store, log, clock, eventLifeMs, remembered: (revision, until) => remembered(cache, revision, until) }),
    recentDeliveries: new RecentDeliveries(),
    accountChecks: createAccountChecks({ settings: config.accountChecks, issuer: config.baseUrl, keys: signingKeys, fetch, clock, random }),
    audit: options.audit,
    content: upstream === undefined ? undefined : contentSource(upstream),
    imageContents,
    vulnerabilitiesIn: (image, turn) => vulnerabilitiesIn(services, image, turn),
    recordedVulnerabilities: (tag, signal) => recordedVulnerabilities(services, tag, signal),
    imageFacts: (repo, images, turn) => imageFacts(services, { repo, images }, turn),
    pullTrials: upstream === undefined ? undefined : pullTrials(() => services, { upstream, trustedRoot: options.trustedRoot }),
    scannerReports:
      upstream === undefined ? undefined : new ScannerReports({ services: () => services, upstream, folder: join(config.dataDir, 'report-reading') }),
    catalogue: (kind) => catalogues?.source(kind),
    catalogues,
    feeds,
  }
  const collector = upstream === undefined ? undefined : new Collector(services, upstream, { graceMs: config.registry.collect.graceHours * hourMs })
  return {
    ...{ store, cache, signingKeys, eventKeys, pageKeys, registryKeys, keyring, history: historyRetention(config), collector, catalogues, feeds, services },
    imageContents,
    contentsJob: contents === undefined || !config.registry.readContents ? undefined : new ContentsJob({ ...contents, services }),
    vulnerabilityCounts: new VulnerabilityCounts(services),
    lifeCycles: config.registry.lifecycle.deprecate ? new LifeCycleDeprecation(services, { readsContents: config.registry.readContents }) : undefined,
  }
}

/** Returns the settings on which the behaviour of resources depends. */
function settingsOf({ config, devIssuer }: EngineOptions): ResourceSettings {
  return {
    selfServiceRootGroups: config.selfService.rootGroups,
    organizationsPerPerson: config.selfService.organizationsPerPerson,
    limits: { operators: limitsFrom(config.limits.organizations), selfService: limitsFrom(config.limits.selfService) },
    nameHoldMs: config.organizations.nameHoldDays * 24 * hourMs,
    ownIssuer: config.baseUrl,
    terms: new Set(config.terms.map(({ id }) => id)),
    trustedIssuers: new Set(config.issuers.map((row) => row.issuer)),
    operators: new Set(config.bootstrap.operators.map(({ issuer, subject }) => personUid(issuer, subject))),
    refresh: { idleMs: config.tokens.refresh.idleHours * hourMs, maxMs: config.tokens.refresh.maxHours * hourMs },
    development: devIssuer !== undefined,
    privateIssuers: new Set(config.issuers.filter((row) => row.allowPrivate === true).map((row) => row.issuer)),
    sinkNetworks: createNetworks(config.events.networks),
    registry: {
      host: config.registry.host,
      publicOrganization: config.registry.publicOrganization,
      upstreamPrefixLength: config.registry.upstream?.prefix === undefined ? 0 : config.registry.upstream.prefix.length + 1,
    },
  }
}

function limitsFrom(rows: readonly LimitConfig[]): Readonly<Record<string, number>> {
  return Object.fromEntries(rows.map(({ limit, max }) => [limit, max]))
}

function historyRetention({ registry }: Config): HistoryRetention {
  const { maxAgeDays, maxMoves } = registry.history ?? {}
  return { ...(maxAgeDays === undefined ? {} : { maxAgeMs: maxAgeDays * 24 * hourMs }), ...(maxMoves === undefined ? {} : { maxMoves }) }
}
