import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { Log } from '../../src/base/log.ts'
import { startEtcdOn } from '../subjects/etcd.ts'
import { datasetVersion } from './generate.ts'
import { writeDataset, type WrittenPlan } from './write-dataset.ts'

/** Folder that keeps datasets between runs. */
const cache = join(tmpdir(), 'taproot-bench')

/** A copy of a dataset's etcd files, which a run may change. */
export interface Dataset {
  readonly directory: string
  readonly plan: WrittenPlan
}

const quiet: Log = { debug() {}, info() {}, warn: console.warn, error: console.error }

/** Copies the etcd data of a dataset into a folder of this run. If no earlier run created the dataset, creates it first. */
export async function copyDataset(records: number, progress: (text: string) => void): Promise<Dataset> {
  const kept = join(cache, `etcd-v${datasetVersion}-${records}`)
  const plan = (await readPlan(kept)) ?? (await make(kept, records, progress))
  const directory = await mkdtemp(join(tmpdir(), 'taproot-bench-run-'))
  await cp(join(kept, 'data'), directory, { recursive: true })
  return { directory, plan }
}

async function readPlan(directory: string): Promise<WrittenPlan | undefined> {
  try {
    // a cast: this version of `make` wrote the file
    return JSON.parse(await readFile(join(directory, 'plan.json'), 'utf8')) as WrittenPlan
  } catch {
    // The dataset does not exist yet.
    return undefined
  }
}

async function make(kept: string, records: number, progress: (text: string) => void): Promise<WrittenPlan> {
  await mkdir(cache, { recursive: true })
  const unfinished = await mkdtemp(join(cache, 'making-'))
  try {
    const etcd = await startEtcdOn(join(unfinished, 'data'), { durable: false })
    const store = createEtcdStore({ endpoints: [etcd.endpoint], log: quiet })
    const plan = await writeDataset(store, records, (written) => progress(`writing ${records} records: ${written}`))
    await store.close()
    await etcd.stop()
    await writeFile(join(unfinished, 'plan.json'), JSON.stringify(plan))
    await rm(kept, { recursive: true, force: true })
    await rename(unfinished, kept)
    return plan
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}
