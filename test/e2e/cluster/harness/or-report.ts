import type { Cluster } from './cluster.ts'

/** Takes the step; where it fails the error also says what is in the cluster, and the last words of its containers. */
export async function orReport<T>(cluster: Cluster, step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (error) {
    throw new Error(`${String(error)}\n${await cluster.report()}`, { cause: error })
  }
}
