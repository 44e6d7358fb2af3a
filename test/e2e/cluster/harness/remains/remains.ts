import { existsSync } from 'node:fs'
import { lstat, readdir, readFile, readlink, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { processesOfCgroups, removeCgroups } from '../cgroups.ts'
import { run } from '../command.ts'
import { namespaceFile, type Place } from '../place.ts'

const timeoutMs = 30_000
/** The folder in which kubelet links the logs of containers. */
const logLinks = '/var/log/containers'

/** Ends every process of a cluster and removes its mounts, network, cgroups and files, as far as they exist. Throws if something can't be removed. */
export async function removeRemains(place: Place): Promise<void> {
  await killAll(place)
  await unmountAll(place.directory)
  await removeNetwork(place)
  await until(() => removeCgroups(place.name).then(() => true, isNotBusy))
  await removeLogLinks(place.directory)
  await rm(place.directory, { recursive: true, force: true, maxRetries: 3 })
}

/** A killed process may not have ended yet. */
function isNotBusy(error: NodeJS.ErrnoException): boolean {
  if (error.code === 'EBUSY') return false
  throw error
}

async function killAll(place: Place): Promise<void> {
  await until(async () => {
    const pids = await processesOf(place)
    for (const pid of pids) kill(pid)
    return pids.length === 0
  })
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    // It ended by itself.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Returns the processes in its cgroups (pods), in its network namespace (servers), and those with its directory in their command (shims). */
async function processesOf(place: Place): Promise<number[]> {
  const namespace = namespaceFile(place)
  const inode = existsSync(namespace) ? (await stat(namespace)).ino : undefined
  const isOurs = async (pid: number): Promise<boolean> => {
    const folder = join('/proc', String(pid))
    if (inode !== undefined && (await readlink(join(folder, 'ns/net')).catch(() => '')) === `net:[${inode}]`) return true
    const command = await readFile(join(folder, 'cmdline'), 'utf8').catch(() => '')
    return command.split('\0').some((word) => word.startsWith(`${place.directory}/`))
  }
  const running = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const ours = await Promise.all(running.map(async (pid) => (pid !== process.pid && (await isOurs(pid)) ? [pid] : [])))
  return [...new Set([...ours.flat(), ...(await processesOfCgroups(place.name))])]
}

/** Unmounts in reverse order of mounting. */
async function unmountAll(directory: string): Promise<void> {
  await until(async () => {
    const points = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').map((line) => line.split(' ')[4] ?? '')
    const ours = points.filter((point) => point.startsWith(`${directory}/`))
    for (const point of ours.reverse()) await run('umount', [point.replaceAll('\\040', ' ')]).catch(() => undefined)
    return ours.length === 0
  })
}

/** The pair of interfaces and the machine's routes are removed with the namespace. */
async function removeNetwork(place: Place): Promise<void> {
  if (existsSync(namespaceFile(place))) await run('ip', ['netns', 'delete', place.name])
  const left = async (): Promise<boolean> => existsSync(join('/sys/class/net', place.hostInterface))
  if (await left()) await run('ip', ['link', 'delete', place.hostInterface]).catch(() => undefined)
  await until(async () => !(await left()))
}

async function removeLogLinks(directory: string): Promise<void> {
  for (const name of await readdir(logLinks).catch(() => [])) {
    const link = join(logLinks, name)
    if ((await lstat(link)).isSymbolicLink() && (await readlink(link)).startsWith(`${directory}/`)) await rm(link)
  }
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('remains of a cluster could not be removed')
    await delay(50)
  }
}
