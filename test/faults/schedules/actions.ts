import type { Action } from './action.ts'
import { memberActions } from './actions-cluster.ts'
import { historyActions } from './actions-history.ts'
import { processActions } from './actions-process.ts'

/** Every fault, by name. */
export const actions = { ...memberActions, ...processActions, ...historyActions } as const satisfies Readonly<Record<string, Action>>

export type ActionName = keyof typeof actions
