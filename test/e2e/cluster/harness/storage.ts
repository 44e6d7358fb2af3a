import { statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'

/** OVERLAYFS_SUPER_MAGIC of linux/magic.h */
const overlayType = 0x794c7630

/** True where temporary files are on a file system on which layers can be laid over each other without copies; not so inside of most containers. */
export async function canOverlay(): Promise<boolean> {
  return (await statfs(tmpdir())).type !== overlayType
}
