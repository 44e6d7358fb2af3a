import { statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'

/** OVERLAYFS_SUPER_MAGIC of linux/magic.h */
const overlayType = 0x794c7630

/** Returns whether temporary files are on a file system that overlays layers without copies; false inside most containers. */
export async function canOverlay(): Promise<boolean> {
  return (await statfs(tmpdir())).type !== overlayType
}
