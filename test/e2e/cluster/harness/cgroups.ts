import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const mounted = '/sys/fs/cgroup'
const unifiedControllers = ['cpuset', 'cpu', 'io', 'memory', 'pids']

/** Returns the folders of the cgroups with that name: one in version 2, or one for each controller in version 1. */
export async function cgroupFolders(name: string): Promise<string[]> {
  if (isUnified()) return [join(mounted, name)]
  const entries = await readdir(mounted, { withFileTypes: true })
  return entries.filter((entry) => entry.isDirectory() && entry.name !== 'unified').map((entry) => join(mounted, entry.name, name))
}

function isUnified(): boolean {
  return existsSync(join(mounted, 'cgroup.controllers'))
}

/** Creates a cgroup with that name for every controller, in which kubelet creates those of pods. */
export async function makeCgroups(name: string): Promise<void> {
  for (const folder of await cgroupFolders(name)) {
    await mkdir(folder)
    if (isUnified()) {
      const all = unifiedControllers.map((controller) => `+${controller}`).join(' ')
      for (const parent of [mounted, folder]) await writeFile(join(parent, 'cgroup.subtree_control'), all)
    }
    // In version 1 processors and memory nodes are not inherited.
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      if (!isUnified() && existsSync(join(folder, file))) await writeFile(join(folder, file), await readFile(join(folder, '..', file), 'utf8'))
    }
  }
}

/** Returns the processes in the cgroups with that name, and in those below. */
export async function processesOfCgroups(name: string): Promise<number[]> {
  const folders = (await Promise.all((await cgroupFolders(name)).map(treeOf))).flat()
  const lists = await Promise.all(folders.map((folder) => readFile(join(folder, 'cgroup.procs'), 'utf8').catch(() => '')))
  return lists.flatMap((list) => list.split('\n').filter((line) => line !== '')).map(Number)
}

/** Removes the cgroups with that name, which must not contain processes. */
export async function removeCgroups(name: string): Promise<void> {
  for (const folder of await cgroupFolders(name)) for (const below of (await treeOf(folder)).reverse()) await rmdir(below)
}

/** Returns the folder and all folders below, parents first; empty if it does not exist. */
async function treeOf(folder: string): Promise<string[]> {
  if (!existsSync(folder)) return []
  const entries = await readdir(folder, { withFileTypes: true })
  const below = await Promise.all(entries.filter((entry) => entry.isDirectory()).map((entry) => treeOf(join(folder, entry.name))))
  return [folder, ...below.flat()]
}
