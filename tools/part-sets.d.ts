import type { PartName } from './parts.js'

/** The real programs (parts) that each command of tools/setup.js needs, in addition to the packages. */
export const partSets: Readonly<Record<'test' | 'clients' | 'cluster' | 'faults' | 'bench', readonly PartName[]>>
