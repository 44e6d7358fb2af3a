import type { Action } from './action.ts'
import { memberActions } from './actions-cluster.ts'
import { dropActions } from './actions-dropping.ts'
import { historyActions } from './actions-history.ts'
import { processActions } from './actions-process.ts'
import { restoreActions } from './actions-restore.ts'

const table = { ...memberActions, ...processActions, ...historyActions, ...restoreActions, ...dropActions } as const satisfies Readonly<Record<string, Action>>

export type ActionName = keyof typeof table

/** Every fault, by name. */
export const actions: Readonly<Record<ActionName, Action>> = table
