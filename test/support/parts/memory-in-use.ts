import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Memory in use of a process, in bytes. */
export interface MemoryInUse {
  readonly heap: number
  /** Buffers and other memory outside V8's heap. */
  readonly external: number
}

/** The memory in use of this process after full garbage collections. */
export async function memoryInUse(): Promise<MemoryInUse> {
  setFlagsFromString('--expose-gc')
  // A function of V8's, once the flag is set.
  const collect = runInNewContext('gc') as () => void
  // Buffers are released in a separate turn.
  for (let round = 0; round < 3; round += 1) {
    collect()
    await new Promise((resolve) => setImmediate(resolve))
  }
  const { heapUsed, external } = process.memoryUsage()
  return { heap: heapUsed, external }
}
