/** An entry of a tar that a test makes. */
export interface TestEntry {
  readonly path: string
  readonly data?: string | Uint8Array
  /** The type flag: `0` file, `1` hard link, `2` symbolic link, `5` folder. */
  readonly type?: string
  readonly link?: string
  readonly mode?: number
  /** The size in the header, if it is wrong. */
  readonly size?: number
}

const blockBytes = 512

function header({ path, type = '0', link = '', mode = 0o644 }: TestEntry, size: number): Buffer {
  const block = Buffer.alloc(blockBytes)
  block.write(path, 0, 100)
  block.write(mode.toString(8).padStart(7, '0'), 100)
  block.write('0000000\x000000000\x00', 108)
  block.write(size.toString(8).padStart(11, '0'), 124)
  block.write('00000000000', 136)
  block.write('        ', 148)
  block.write(type, 156)
  block.write(link, 157, 100)
  block.write('ustar\x0000', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}

/** Returns a tar of the entries, in their order. Paths have at most 100 bytes. */
export function tarOf(entries: readonly TestEntry[]): Buffer {
  const blocks = entries.flatMap((entry) => {
    const data = Buffer.from(entry.data ?? '')
    return [header(entry, entry.size ?? data.length), data, Buffer.alloc((blockBytes - (data.length % blockBytes)) % blockBytes)]
  })
  return Buffer.concat([...blocks, Buffer.alloc(2 * blockBytes)])
}

/** Returns a stream of the bytes in pieces. */
export async function* piecesOf(bytes: Uint8Array, pieceBytes = 10_000): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += pieceBytes) yield await Promise.resolve(bytes.subarray(at, at + pieceBytes))
}

/** Returns the layers of files: path -> content. */
export function layersOf(...layers: readonly Readonly<Record<string, string | Uint8Array>>[]): AsyncIterable<Uint8Array>[] {
  return layers.map((files) => piecesOf(tarOf(Object.entries(files).map(([path, data]) => ({ path, data, mode: 0o755 })))))
}
