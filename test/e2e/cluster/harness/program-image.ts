import { createHash } from 'node:crypto'
import { copyFile, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { crane, type CraneOptions } from '../../../support/parts/crane.ts'
import { run } from './command.ts'

/** An image of static programs only. */
export interface ProgramImage {
  /** The name with its tag, such as `taproot.test/etcd:1`. */
  readonly name: string
  /** Paths of the programs on this machine. They are in `/bin` of the image, which runs the first. */
  readonly programs: readonly [string, ...string[]]
}

const types = {
  layer: 'application/vnd.oci.image.layer.v1.tar',
  config: 'application/vnd.oci.image.config.v1+json',
  manifest: 'application/vnd.oci.image.manifest.v1+json',
}

/** Writes the image to a file, as an OCI archive. */
export function writeProgramImage(image: ProgramImage, file: string): Promise<void> {
  return withLayout(image, async (layout) => void (await run('tar', ['--create', `--file=${file}`, `--directory=${layout}`, '.'])))
}

/** Pushes the image to the repository and tag of its name, without TLS. `options` are those of crane. */
export function pushProgramImage(image: ProgramImage, options?: CraneOptions): Promise<void> {
  return withLayout(image, async (layout) => {
    const { code, stderr } = await crane(['push', '--insecure', layout, image.name], options)
    if (code !== 0) throw new Error(`${image.name} was not pushed: ${stderr}`)
  })
}

/** Passes the image to `use` as an OCI layout: a folder that is removed afterwards. */
async function withLayout({ name, programs }: ProgramImage, use: (layout: string) => Promise<void>): Promise<void> {
  const home = await mkdtemp(join(tmpdir(), 'taproot-program-image-'))
  try {
    const [tree, layout] = [join(home, 'tree'), join(home, 'layout')]
    const blobs = join(layout, 'blobs', 'sha256')
    await mkdir(join(tree, 'bin'), { recursive: true })
    await mkdir(join(tree, 'tmp'))
    await mkdir(blobs, { recursive: true })
    for (const program of programs) await copyFile(program, join(tree, 'bin', basename(program)))
    const layerFile = join(home, 'layer.tar')
    await run('tar', ['--create', `--file=${layerFile}`, '--owner=0', '--group=0', '--mode=a+rX', `--directory=${tree}`, '.'])
    const layer = describe(types.layer, await readFile(layerFile))
    await rename(layerFile, join(blobs, hexOf(layer)))
    const write = async (mediaType: string, value: object): Promise<Descriptor> => {
      const bytes = Buffer.from(JSON.stringify(value))
      const descriptor = describe(mediaType, bytes)
      await writeFile(join(blobs, hexOf(descriptor)), bytes)
      return descriptor
    }
    const config = await write(types.config, {
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: { Entrypoint: [`/bin/${basename(programs[0])}`], Env: ['PATH=/bin'] },
      rootfs: { type: 'layers', diff_ids: [layer.digest] },
    })
    const manifest = await write(types.manifest, { schemaVersion: 2, mediaType: types.manifest, config, layers: [layer] })
    // containerd names imported images by this annotation.
    const index = { schemaVersion: 2, manifests: [{ ...manifest, annotations: { 'io.containerd.image.name': name } }] }
    await writeFile(join(layout, 'index.json'), JSON.stringify(index))
    await writeFile(join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }))
    await use(layout)
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}

interface Descriptor {
  readonly mediaType: string
  readonly digest: string
  readonly size: number
}

function describe(mediaType: string, bytes: Buffer): Descriptor {
  return { mediaType, digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`, size: bytes.length }
}

function hexOf({ digest }: Descriptor): string {
  return digest.slice('sha256:'.length)
}
