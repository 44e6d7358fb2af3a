import type { InstallationKind } from '../cluster/installation.ts'
import type { ActionName } from './actions.ts'

/** Relative frequency of each fault in its lane. */
export type Weights = Readonly<Partial<Record<ActionName, number>>>

/** The faults of an installation, and its use in between. */
export interface Schedule {
  /** Its purpose, in one line. */
  readonly summary: string
  readonly kind: InstallationKind
  /** Space in bytes of etcd, or of the SQLite file's disk; the default if absent. */
  readonly roomBytes?: number
  /** Faults of one lane are sequential. Lanes are concurrent. */
  readonly lanes: readonly Weights[]
  /** Number of clients of the workload. */
  readonly clients: number
  /** Number of writes that must be acknowledged between two faults of a lane. */
  readonly progressWrites: number
  /** Default duration in seconds. */
  readonly briefSeconds: number
}

const network: Weights = {
  'cut process from member': 3,
  'stall answers of a member': 2,
  'cut process from etcd': 2,
  'slow process': 2,
}
const peers: Weights = {
  'isolate leader': 3,
  'isolate member': 2,
  'cut peer link': 2,
  'cut peer link one way': 3,
  'slow peers': 2,
  'move leader': 2,
}
const memberKills: Weights = { 'kill member': 5, 'kill leader': 3, 'kill majority': 1 }
const processKills: Weights = { 'kill process': 6, 'kill all processes': 1, 'kill process while it starts': 1 }

/** Returns the faults of all lanes, each once. */
export function namesIn(lanes: readonly Weights[]): ActionName[] {
  // Tables of action names.
  return [...new Set(lanes.flatMap((lane) => Object.keys(lane) as ActionName[]))]
}

/** Every schedule, by name. */
export const schedules = {
  kills: {
    summary: 'etcd members and API processes are killed all the time',
    kind: 'cluster',
    lanes: [memberKills, { ...processKills, 'kill everything': 1 }, { compact: 1 }],
    clients: 12,
    progressWrites: 10,
    briefSeconds: 60,
  },
  members: {
    summary: 'etcd members are killed, suspended and cut off from one another; leaders move',
    kind: 'cluster',
    lanes: [{ ...memberKills, ...peers, 'pause member': 2, 'pause leader': 2, defragment: 1 }, { compact: 1 }],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 60,
  },
  processes: {
    summary: 'API processes are killed and suspended, also beyond their leases',
    kind: 'cluster',
    lanes: [{ ...processKills, 'pause process': 3, 'pause process beyond its lease': 1 }],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 60,
  },
  network: {
    summary: 'links between processes and members are cut, stalled and slow; etcd forgets its history under a stalled watch',
    kind: 'cluster',
    lanes: [{ ...network, 'compact under a stalled watch': 3 }, peers],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 60,
  },
  'late-commit': {
    summary: 'followers deliver transactions to their leader late, when callers have their answers',
    kind: 'cluster',
    lanes: [
      { 'hold proposals': 6, 'move leader': 2, 'kill member': 1 },
      { 'kill process': 1, 'cut process from member': 2 },
    ],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 60,
  },
  versions: {
    summary: 'API processes of this version and of an earlier one (--previous) take turns on one store',
    kind: 'cluster',
    lanes: [
      { 'change version': 3, 'kill process': 1 },
      { 'cut process from member': 1, compact: 1 },
    ],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 60,
  },
  dropping: {
    summary: 'packets between processes and members, and between members, are lost for seconds while connections stay as they are',
    kind: 'cluster',
    lanes: [
      { 'drop between process and member': 2, 'drop between process and etcd': 3, 'drop between processes and etcd': 1 },
      { 'drop between members': 2, 'drop around leader': 2, 'move leader': 1 },
    ],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 90,
  },
  clocks: {
    summary: 'wall clocks of API processes jump by seconds to days, both ways, while processes are killed',
    kind: 'cluster',
    lanes: [
      { 'clock jump': 1, 'clock jump by days': 1 },
      { 'kill process': 1, 'pause process': 1 },
    ],
    clients: 12,
    progressWrites: 10,
    briefSeconds: 45,
  },
  space: {
    summary: 'etcd runs out of space and gets room again, while processes are killed',
    kind: 'cluster',
    roomBytes: 48 << 20,
    lanes: [{ 'etcd out of space': 1 }, { 'kill process': 1, 'cut process from member': 1 }],
    clients: 12,
    progressWrites: 10,
    briefSeconds: 45,
  },
  backup: {
    summary: 'backups of etcd are restored under running processes, as another cluster and as the same one',
    kind: 'cluster',
    lanes: [
      {
        'restore a backup': 2,
        'restore a backup as the same cluster': 2,
        'restore a backup under a sleeping process': 1,
        'restore a backup as the same cluster under a sleeping process': 1,
      },
      { 'kill process': 1, 'kill leader': 1, compact: 1 },
    ],
    clients: 8,
    progressWrites: 20,
    briefSeconds: 45,
  },
  mixed: {
    summary: 'everything that a cluster with enough room can meet',
    kind: 'cluster',
    lanes: [
      { ...memberKills, ...peers, 'pause member': 1, 'pause leader': 1, defragment: 1 },
      { ...processKills, 'pause process': 2 },
      { ...network, 'compact under a stalled watch': 2, compact: 2 },
      { 'clock jump': 1 },
    ],
    clients: 12,
    progressWrites: 20,
    briefSeconds: 120,
  },
  everything: {
    summary: 'all that a cluster can meet, little room and a restored backup included',
    kind: 'cluster',
    roomBytes: 48 << 20,
    lanes: [
      { ...memberKills, ...peers, 'pause member': 1, 'pause leader': 1, defragment: 1, 'kill everything': 1 },
      { ...processKills, 'pause process': 2 },
      { ...network, 'compact under a stalled watch': 2, compact: 2, 'etcd out of space': 2, 'restore a backup': 2 },
      { 'clock jump': 1 },
    ],
    clients: 12,
    progressWrites: 10,
    briefSeconds: 120,
  },
  embedded: {
    summary: 'one process on SQLite is killed, also while it starts, suspended, and kept from writing by a limit on file sizes',
    kind: 'embedded',
    lanes: [{ ...processKills, 'pause process': 1, 'file size limit': 1, 'clock jump': 1 }],
    clients: 8,
    progressWrites: 10,
    briefSeconds: 40,
  },
  'full-disk': {
    summary: 'the disk under SQLite is full and gets room again, while the process is killed',
    kind: 'embedded',
    roomBytes: 32 << 20,
    lanes: [{ 'full disk': 1 }, { 'kill process': 1 }],
    clients: 8,
    progressWrites: 10,
    briefSeconds: 30,
  },
} as const satisfies Readonly<Record<string, Schedule>>

export type ScheduleName = keyof typeof schedules
