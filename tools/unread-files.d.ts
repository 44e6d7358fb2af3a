/** Yields the paths of files and folders in a folder of packages that no server reads, relative to it. */
export function unreadFiles(folder: string): Generator<string>
