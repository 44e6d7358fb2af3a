import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { removeRemains } from './remains.ts'

/** 198.18.0.0/15, set aside for benchmarks (RFC 2544): nothing in it is anywhere else. Each cluster has 4096 addresses. */
const blocks = 32
const blockAddresses = 4096
const firstAddress = 198 * 2 ** 24 + 18 * 2 ** 16

/** What a cluster has of the machine. All names follow from the number, so that one which was left behind can be removed. */
export interface Place {
  /** Of the network namespace, the cgroups and, in front of it, the state directory. */
  readonly name: string
  /** Everything that it writes is below. */
  readonly directory: string
  /** The ends of the pair of interfaces between the machine and the cluster. */
  readonly hostInterface: string
  readonly nodeInterface: string
  /** Their addresses: the one of the machine as pods see it, and the one of the node. */
  readonly hostAddress: string
  readonly nodeAddress: string
  readonly serviceRange: string
  readonly podRange: string
}

function placeOf(block: number): Place {
  const address = (offset: number): string => {
    const value = firstAddress + block * blockAddresses + offset
    return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.')
  }
  const name = `taproot-${block}`
  return {
    name,
    directory: join(tmpdir(), `taproot-cluster-${block}`),
    hostInterface: `${name}-host`,
    nodeInterface: `${name}-node`,
    nodeAddress: address(1),
    hostAddress: address(2),
    serviceRange: `${address(1024)}/22`,
    podRange: `${address(2048)}/21`,
  }
}

/** Claims a place for this process, what a process that is gone left there removed. Throws where all are taken. */
export async function claimPlace(): Promise<Place> {
  for (let block = 0; block < blocks; block += 1) {
    const place = placeOf(block)
    if (await claim(place)) return place
  }
  throw new Error(`${blocks} clusters run already`)
}

async function claim(place: Place): Promise<boolean> {
  const owner = join(place.directory, 'owner')
  try {
    await mkdir(place.directory)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    // Of two processes that remove the same remains one makes the directory.
    if (await isOwned(owner)) return false
    await removeRemains(place)
    return claim(place)
  }
  await writeFile(owner, String(process.pid))
  return true
}

async function isOwned(file: string): Promise<boolean> {
  const pid = Number(await readFile(file, 'utf8').catch(() => '0'))
  try {
    return pid > 0 && process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
