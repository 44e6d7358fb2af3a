import type { PartName } from './parts.js'

/** The real parts that each command of tools/setup.js needs beside the packages. */
export const partSets: Readonly<Record<'test' | 'clients' | 'cluster' | 'faults' | 'bench', readonly PartName[]>>
