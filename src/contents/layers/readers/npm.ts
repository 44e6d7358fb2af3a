import type { LayerPackage } from '../layer-package.ts'
import type { Reader } from '../reader.ts'

const maxBytes = 4 * 1024 * 1024

function licenseName(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value)) return value.slice(0, 20).flatMap(licenseName)
  return value !== null && typeof value === 'object' && 'type' in value && typeof value.type === 'string' ? [value.type] : []
}

/** Returns the package of a parsed `package.json`, or undefined if it has no name or version. */
function npmPackage(json: unknown): LayerPackage | undefined {
  if (json === null || typeof json !== 'object' || !('name' in json) || !('version' in json)) return undefined
  const { name, version } = json
  if (typeof name !== 'string' || typeof version !== 'string') return undefined
  const [, namespace, short] = /^(@[^/]+)\/(.+)$/.exec(name) ?? []
  const url = namespace === undefined || short === undefined ? {} : { namespace, name: short }
  const licenses = [...('license' in json ? licenseName(json.license) : []), ...('licenses' in json ? licenseName(json.licenses) : [])]
  return { type: 'npm', name, version, url, licenses }
}

/** `package.json` of npm. One without name and version belongs to no package. */
export const npm: Reader = {
  wants: (path) => path === 'package.json' || path.endsWith('/package.json'),
  async read(file, findings) {
    const found = npmPackage(JSON.parse((await file.bytes(maxBytes)).toString('utf8').replace(/^\uFEFF/, '')))
    if (found !== undefined) findings.add(found)
  },
}
