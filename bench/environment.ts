import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { copyDataset } from './data/datasets.ts'
import type { WrittenPlan } from './data/write-dataset.ts'
import type { Load } from './load/load.ts'
import { startGenerator, type GeneratorProcess } from './load/start-generator.ts'
import type { Rounds } from './measure.ts'
import { startEtcdOn, type Etcd } from './subjects/etcd.ts'
import { startIssuer, type Issuer } from './subjects/issuer.ts'
import { startKube, type Kube } from './subjects/kube.ts'
import { startDistribution, type Distribution } from './subjects/distribution.ts'
import { makeEncryptionKeyFile, startRegistryHost, startTaproot, type Taproot, type TaprootProcess } from './subjects/taproot.ts'

/** A running etcd with a dataset. */
export interface Stored {
  readonly etcd: Etcd
  readonly plan: WrittenPlan
}

/** Selects a server. */
export interface ServerKey {
  readonly records: number
  readonly reads?: 'linearizable' | 'bounded'
  /** If true, the server uses TLS, with the certificate of the kube-apiserver that it is compared with. Then TLS costs both the same. */
  readonly tls?: boolean
  /** If set, the server is a further replica of the server with this URL. */
  readonly baseUrl?: string
}

/** Selects a registry host. */
export interface HostKind {
  readonly blobCacheMegabytes?: number
  /** True if it stores blobs in a folder instead of a registry. */
  readonly overFolder?: boolean
}

/** Amounts to measure. */
export interface Scale {
  /** Number of records for rows with one size, and the smaller number for rows that compare two sizes. */
  readonly baseRecords: number
  readonly smallRecords: number
  readonly largeRecords: number
  readonly connections: number
  readonly rounds: Rounds
}

type Cleanup = () => Promise<unknown>

/** The servers that rows run against. Each is started when a row first needs it, and later rows share it. */
export class Environment {
  readonly scale: Scale
  readonly progress: (text: string) => void
  readonly #cleanups: Cleanup[] = []
  readonly #started = new Map<string, Promise<unknown>>()

  constructor(scale: Scale, progress: (text: string) => void) {
    this.scale = scale
    this.progress = progress
  }

  /** Returns a folder that is removed at the end. */
  directory(): Promise<string> {
    return this.once('directory', async () => {
      const directory = await mkdtemp(join(tmpdir(), 'taproot-bench-'))
      this.#cleanups.push(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }))
      return directory
    })
  }

  issuer(): Promise<Issuer> {
    return this.once('issuer', async () => this.#track(await startIssuer()))
  }

  encryptionKeyFile(): Promise<string> {
    return this.once('key', async () => makeEncryptionKeyFile(await this.directory()))
  }

  /** Returns an etcd with a dataset of `records` records. */
  stored(records: number): Promise<Stored> {
    return this.once(`etcd ${records}`, async () => {
      this.progress(`preparing etcd with ${records} records`)
      const { directory, plan } = await copyDataset(records, this.progress)
      this.#cleanups.push(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }))
      return { etcd: this.#track(await startEtcdOn(directory)), plan }
    })
  }

  /** Returns a server on such a dataset. */
  taproot(key: ServerKey): Promise<Taproot> {
    return this.once(`taproot ${JSON.stringify(key)}`, async () => {
      const { etcd } = await this.stored(key.records)
      const kube = key.tls === true ? await this.kube(key.records) : undefined
      return this.startTaproot({
        store: { etcd: etcd.endpoint },
        ...(key.reads === undefined ? {} : { reads: key.reads }),
        ...(key.baseUrl === undefined ? {} : { baseUrl: key.baseUrl }),
        ...(kube === undefined ? {} : { tls: kube.server }),
      })
    })
  }

  /** Starts a server that is not shared. It is stopped at the end if it still runs. */
  async startTaproot(options: Omit<Parameters<typeof startTaproot>[0], 'issuer' | 'encryptionKeyFile'>): Promise<Taproot> {
    this.progress('starting taproot')
    return this.#track(await startTaproot({ ...options, issuer: await this.issuer(), encryptionKeyFile: await this.encryptionKeyFile() }))
  }

  /** Returns a CNCF distribution registry: the upstream, and what clients would use without Taproot. */
  distribution(): Promise<Distribution> {
    return this.once('distribution', async () => this.#track(await startDistribution()))
  }

  /**
   * Returns a registry host on a dataset, next to the API, with `distribution()` or a folder as upstream. It has the default memory for
   * cached blobs, or another amount.
   */
  registryHost(records: number, kind: HostKind = {}): Promise<TaprootProcess> {
    return this.once(`registry host ${records} ${JSON.stringify(kind)}`, async () => {
      const { etcd } = await this.stored(records)
      const { baseUrl } = await this.taproot({ records })
      const { overFolder = false, ...memory } = kind
      const upstream = overFolder ? { folder: join(await this.directory(), 'folder-upstream') } : { url: (await this.distribution()).url }
      this.progress('starting taproot registry')
      const shared = { issuer: await this.issuer(), encryptionKeyFile: await this.encryptionKeyFile(), store: { etcd: etcd.endpoint } }
      return this.#track(await startRegistryHost({ ...shared, baseUrl, upstream, ...memory }))
    })
  }

  kube(records: number): Promise<Kube> {
    return this.once(`kube ${records}`, async () => {
      const { etcd } = await this.stored(records)
      this.progress('starting kube-apiserver')
      return this.#track(await startKube(etcd.endpoint, records, this.progress))
    })
  }

  /** Starts a load generator process for each load, runs `work` with them, and ends them. */
  async withGenerators<const L extends readonly Load[], T>(loads: L, work: (generators: { [K in keyof L]: GeneratorProcess }) => Promise<T>): Promise<T> {
    const generators: GeneratorProcess[] = []
    try {
      for (const load of loads) generators.push(await startGenerator(load))
      // a cast: one generator per load, in their order
      return await work(generators as { [K in keyof L]: GeneratorProcess })
    } finally {
      for (const generator of generators) await generator.close()
    }
  }

  /** Stops everything in reverse order of the starts. */
  async stop(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup()
  }

  #track<T extends { stop(): Promise<unknown> }>(started: T): T {
    this.#cleanups.push(() => started.stop())
    return started
  }

  /** Returns the result of the first call with this name; later calls do not start anything. */
  once<T>(name: string, start: () => Promise<T>): Promise<T> {
    const held = this.#started.get(name)
    // a cast: each name always has the same type
    if (held !== undefined) return held as Promise<T>
    const starting = start()
    this.#started.set(name, starting)
    return starting
  }
}
