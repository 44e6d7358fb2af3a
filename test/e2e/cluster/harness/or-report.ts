import type { Cluster } from './cluster.ts'

/** Runs the step. If it fails, the error also contains the state of the cluster and the last log lines of its containers. */
export async function orReport<T>(cluster: Cluster, step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (error) {
    throw new Error(`${String(error)}\n${await cluster.report()}`, { cause: error })
  }
}
