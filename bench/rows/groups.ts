import { createRows } from './create.ts'
import { getRows } from './get.ts'
import { kubeRows } from './kube.ts'
import type { RowGroup } from './row.ts'

/** All rows, in the order in which they are measured. */
export const groups: readonly RowGroup[] = [getRows, createRows, kubeRows]
