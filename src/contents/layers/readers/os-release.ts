import type { Reader } from '../reader.ts'

const maxBytes = 64 * 1024
const line = /^\s*([A-Z_]+)=(.*?)\s*$/

/** The file that is in `/etc` counts before the one in `/usr/lib`. */
export const osReleasePaths = ['etc/os-release', 'usr/lib/os-release'] as const

function unquoted(value: string): string {
  const [, , quoted] = /^(["'])(.*)\1$/.exec(value) ?? []
  return (quoted ?? value).replaceAll(/\\(["'$`\\])/g, '$1')
}

/** os-release (freedesktop.org): which distribution it is. */
export const osRelease: Reader = {
  wants: (path) => osReleasePaths.some((known) => known === path),
  async read(file, findings) {
    const text = (await file.bytes(maxBytes)).toString('utf8')
    const values = new Map<string, string>()
    for (const [, key = '', value = ''] of text.split('\n').map((each) => line.exec(each) ?? [])) values.set(key, unquoted(value))
    const id = (values.get('ID') ?? '').toLowerCase()
    if (/^[a-z0-9._-]{1,64}$/.test(id)) findings.distribution = { id, version: (values.get('VERSION_ID') ?? '').slice(0, 64) }
  },
}
