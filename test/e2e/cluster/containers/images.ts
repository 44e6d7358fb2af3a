import { chmod, copyFile, mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import { run } from '../harness/command.ts'
import { canOverlay } from '../harness/storage.ts'
import type { TaprootImage } from '../harness/taproot-image.ts'
import type { UnpackedImage } from './bundle.ts'
import type { ContainerSpec } from './container.ts'

/** An image of one static program, in place of one that can't be pulled. */
export interface StandIn {
  /** The program on this machine, and its path in the image. */
  readonly program: string
  readonly path: string
  /** The arguments in front of the command of a container. */
  readonly entrypoint: readonly string[]
  /** More files, by path in the image. */
  readonly files?: Readonly<Record<string, string>>
}

interface ImageConfig {
  readonly Entrypoint: readonly string[]
  readonly Env: readonly string[]
  readonly Cmd: readonly string[]
  readonly User: string
  readonly WorkingDir: string
}

/** The images of a machine. That of Taproot is stored by buildah under the name `taproot`. */
export class MachineImages {
  readonly #directory: string
  readonly #standIns: Readonly<Record<string, StandIn>>

  constructor(directory: string, standIns: Readonly<Record<string, StandIn>>) {
    this.#directory = directory
    this.#standIns = standIns
  }

  /** The program buildah with the place where it stores images. */
  async buildah(): Promise<readonly [string, ...string[]]> {
    const at = (name: string): string => join(this.#directory, name)
    const driver = (await canOverlay()) ? 'overlay' : 'vfs'
    return [requirePart('buildah'), '--root', at('storage'), '--runroot', at('run'), '--storage-driver', driver]
  }

  /** Loads the image of Taproot. */
  async load({ archive }: TaprootImage): Promise<void> {
    await this.#run('pull', '--quiet', `oci-archive:${archive}`)
    const id = (await this.#run('images', '--quiet')).split('\n')[0] ?? ''
    await this.#run('tag', id, 'taproot')
  }

  /** Unpacks the image of a container into a folder of its own. */
  async unpack(spec: ContainerSpec): Promise<UnpackedImage> {
    const standIn = this.#standIns[spec.image]
    return standIn === undefined ? this.#unpackImage(spec) : this.#unpackStandIn(spec, standIn)
  }

  async #unpackImage({ image, command }: ContainerSpec): Promise<UnpackedImage> {
    const container = await this.#run('from', '--pull-never', image)
    const rootfs = await this.#run('mount', container)
    const { OCIv1: stored } = JSON.parse(await this.#run('inspect', container)) as { OCIv1: { config: ImageConfig } } // a cast: buildah's form
    const { Entrypoint, Cmd, Env, User, WorkingDir } = stored.config
    const [uid = 0, gid = 0] = User.split(':').map(Number)
    return { rootfs, args: [...Entrypoint, ...(command.length > 0 ? command : Cmd)], env: Env, directory: WorkingDir, user: { uid, gid } }
  }

  async #unpackStandIn({ name, command }: ContainerSpec, { program, path, entrypoint, files = {} }: StandIn): Promise<UnpackedImage> {
    const rootfs = join(this.#directory, 'stand-ins', name)
    for (const [target, source] of Object.entries({ [path]: program, ...files })) {
      await mkdir(dirname(join(rootfs, target)), { recursive: true })
      await copyFile(source, join(rootfs, target))
    }
    await chmod(join(rootfs, path), 0o755)
    await mkdir(join(rootfs, 'tmp'))
    return { rootfs, args: [...entrypoint, ...command], env: [`PATH=${dirname(path)}`, 'HOME=/tmp'], directory: '/', user: { uid: 0, gid: 0 } }
  }

  async #run(...args: string[]): Promise<string> {
    const [buildah, ...storage] = await this.buildah()
    return (await run(buildah, [...storage, ...args])).trim()
  }
}
