import { configureGlobal, readConfigureGlobal } from 'fast-check'
import { inject } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** The seed of the properties' random values, a 32-bit integer; undefined for new values in each run. */
    readonly propertySeed: number | undefined
  }
}

const seed = inject('propertySeed')
if (seed !== undefined) configureGlobal({ ...readConfigureGlobal(), seed })
