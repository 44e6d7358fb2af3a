import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { blocks, placeOf, type Place } from '../place.ts'
import { removeRemains } from './remains.ts'

/** Claims resources for this process, and removes those left by a dead process. Throws if all are in use. */
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
    // Of two processes that remove the same remains, only one creates the directory.
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
