import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Bytes of memory that a process has in use. */
export interface MemoryInUse {
  readonly heap: number
  /** Buffers and what else V8 knows of outside its heap. */
  readonly external: number
}

/** What this process has in use, right after full garbage collections. */
export async function memoryInUse(): Promise<MemoryInUse> {
  setFlagsFromString('--expose-gc')
  // A function of V8's, once the flag is set.
  const collect = runInNewContext('gc') as () => void
  // Buffers are given back in a turn of their own.
  for (let round = 0; round < 3; round += 1) {
    collect()
    await new Promise((resolve) => setImmediate(resolve))
  }
  const { heapUsed, external } = process.memoryUsage()
  return { heap: heapUsed, external }
}
