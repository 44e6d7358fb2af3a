import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import { run } from '../harness/command.ts'
import type { ContainerMount, ContainerSpec } from './container.ts'

/** The files of an image and what its configuration says. */
export interface UnpackedImage {
  /** A folder that belongs to one container. */
  readonly rootfs: string
  readonly args: readonly string[]
  readonly env: readonly string[]
  readonly directory: string
  readonly user: { readonly uid: number; readonly gid: number }
}

/** Where a container runs. */
export interface BundlePlace {
  readonly folder: string
  readonly cgroup: string
  readonly networkFile: string
  /** The file /etc/hosts of all containers. */
  readonly hostsFile: string
  /** Returns the folder of a volume. */
  volume(name: string): string
}

/** The capabilities that Docker gives to a container. */
const capabilities = [
  ...['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'NET_RAW'],
  ...['SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT'],
].map((name) => `CAP_${name}`)

interface RuntimeSpec {
  process: Record<string, unknown>
  root: Record<string, unknown>
  mounts: Record<string, unknown>[]
  linux: Record<string, unknown> & { namespaces: { type: string; path?: string }[] }
}

/**
 * Writes the bundle of a container for runc: runc's own default, with what Docker sets. Docker's filter of system calls (seccomp) is left
 * out.
 */
export async function writeBundle(spec: ContainerSpec, image: UnpackedImage, place: BundlePlace): Promise<void> {
  await mkdir(place.folder, { recursive: true })
  await run(requirePart('runc'), ['spec', '--bundle', place.folder])
  const file = join(place.folder, 'config.json')
  const config = JSON.parse(await readFile(file, 'utf8')) as RuntimeSpec // a cast: runc's own form
  const bounding = spec.dropsCapabilities ? [] : capabilities
  // A user other than root starts without capabilities.
  const held = image.user.uid === 0 ? bounding : []
  config.process = {
    terminal: false,
    user: image.user,
    args: image.args,
    env: [...image.env, ...Object.entries(spec.env).map(([name, value]) => `${name}=${value}`)],
    cwd: image.directory,
    capabilities: { bounding, effective: held, permitted: held, ambient: [], inheritable: [] },
    noNewPrivileges: spec.noNewPrivileges,
  }
  config.root = { path: image.rootfs, readonly: spec.readOnly }
  config.mounts.push(
    ...[{ kind: 'bind', target: '/etc/hosts', source: place.hostsFile, readOnly: false } as const, ...spec.mounts].map((mount) => runtimeMount(mount, place)),
  )
  config.linux.namespaces = config.linux.namespaces.map((entry) => (entry.type === 'network' ? { ...entry, path: place.networkFile } : entry))
  config.linux['cgroupsPath'] = place.cgroup
  await writeFile(file, JSON.stringify(config))
}

function runtimeMount(mount: ContainerMount, place: BundlePlace): Record<string, unknown> {
  const { target: destination } = mount
  if (mount.kind === 'tmpfs') return { destination, type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'noexec', ...mount.options] }
  const source = mount.kind === 'volume' ? place.volume(mount.volume) : mount.source
  return { destination, type: 'bind', source, options: ['rbind', 'rprivate', mount.kind === 'bind' && mount.readOnly ? 'ro' : 'rw'] }
}
