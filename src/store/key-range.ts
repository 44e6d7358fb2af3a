/**
 * The first key, in byte order, after all keys that start with `prefix`; undefined where there is none (the empty prefix). Keys are
 * ASCII, so that the order of UTF-16 units is the order of bytes.
 */
export function prefixEnd(prefix: string): string | undefined {
  if (prefix === '') return undefined
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
}
