import { configureGlobal, readConfigureGlobal } from 'fast-check'
import { inject } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the properties' random values begin: an integer of 32 bits; undefined for new ones in each run. */
    readonly propertySeed: number | undefined
  }
}

const seed = inject('propertySeed')
if (seed !== undefined) configureGlobal({ ...readConfigureGlobal(), seed })
