import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Place } from '../place.ts'

/** Returns what is left of a cluster on this machine: mounts, folders, network, cgroups, and the commands of processes. */
export async function leftOf({ name, directory, hostInterface }: Place): Promise<string[]> {
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').filter((line) => line.includes(`${directory}/`))
  const paths = [directory, join('/run/netns', name), join('/sys/class/net', hostInterface), join('/sys/fs/cgroup/memory', name), join('/sys/fs/cgroup', name)]
  const processes = (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry))
  const commands = await Promise.all(processes.map((entry) => readFile(join('/proc', entry, 'cmdline'), 'utf8').catch(() => '')))
  return [...mounts, ...paths.filter((path) => existsSync(path)), ...commands.filter((command) => command.includes(`${directory}/`))]
}
