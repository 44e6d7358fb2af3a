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

/** A dataset in a running etcd. */
export interface Stored {
  readonly etcd: Etcd
  readonly plan: WrittenPlan
}

/** Which server is meant. */
export interface ServerKey {
  readonly records: number
  readonly reads?: 'linearizable' | 'bounded'
  /** With the certificate of the kube-apiserver that it is compared with: both then do the same work for TLS. */
  readonly tls?: boolean
  /** A further replica of the server of this URL. */
  readonly baseUrl?: string
}

/** Which registry host is meant. */
export interface HostKind {
  readonly blobCacheMegabytes?: number
  /** True for the folder upstream. */
  readonly overFolder?: boolean
}

/** How much is measured. */
export interface Scale {
  /** Records for what is measured at one size, and the small size of what is measured at two. */
  readonly baseRecords: number
  readonly smallRecords: number
  readonly largeRecords: number
  readonly connections: number
  readonly rounds: Rounds
}

type Cleanup = () => Promise<unknown>

/** What rows run against; everything is started when it is first asked for, and shared by later rows. */
export class Environment {
  readonly scale: Scale
  readonly progress: (text: string) => void
  readonly #cleanups: Cleanup[] = []
  readonly #started = new Map<string, Promise<unknown>>()

  constructor(scale: Scale, progress: (text: string) => void) {
    this.scale = scale
    this.progress = progress
  }

  /** A directory that is removed at the end. */
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

  /** etcd with a dataset of so many records. */
  stored(records: number): Promise<Stored> {
    return this.once(`etcd ${records}`, async () => {
      this.progress(`preparing etcd with ${records} records`)
      const { directory, plan } = await copyDataset(records, this.progress)
      this.#cleanups.push(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }))
      return { etcd: this.#track(await startEtcdOn(directory)), plan }
    })
  }

  /** A server on such a dataset. */
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

  /** A server of the caller's own, stopped at the end if it still runs. */
  async startTaproot(options: Omit<Parameters<typeof startTaproot>[0], 'issuer' | 'encryptionKeyFile'>): Promise<Taproot> {
    this.progress('starting taproot')
    return this.#track(await startTaproot({ ...options, issuer: await this.issuer(), encryptionKeyFile: await this.encryptionKeyFile() }))
  }

  /** A CNCF distribution registry: the upstream, and what clients would use without us. */
  distribution(): Promise<Distribution> {
    return this.once('distribution', async () => this.#track(await startDistribution()))
  }

  /** The registry host on a dataset, next to the API, over `distribution()` or a folder; with memory for blobs as by default, or another one. */
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

  /** Runs `work` with generators for these loads, which end with it. */
  async withGenerators<const L extends readonly Load[], T>(loads: L, work: (generators: { [K in keyof L]: GeneratorProcess }) => Promise<T>): Promise<T> {
    const generators: GeneratorProcess[] = []
    try {
      for (const load of loads) generators.push(await startGenerator(load))
      // One generator per load, in their order.
      return await work(generators as { [K in keyof L]: GeneratorProcess })
    } finally {
      for (const generator of generators) await generator.close()
    }
  }

  /** Stops everything, last started first. */
  async stop(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup()
  }

  #track<T extends { stop(): Promise<unknown> }>(started: T): T {
    this.#cleanups.push(() => started.stop())
    return started
  }

  /** What `start` gave the first time under this name. */
  once<T>(name: string, start: () => Promise<T>): Promise<T> {
    const held = this.#started.get(name)
    // What was started under a name is always the same thing.
    if (held !== undefined) return held as Promise<T>
    const starting = start()
    this.#started.set(name, starting)
    return starting
  }
}
