import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { describeUnless, describeWithParts, requirePart } from '../../../support/parts/require-part.ts'
import { ServerProcess } from '../../../support/parts/server-process.ts'
import { makeCgroups } from '../harness/cgroups.ts'
import { run } from '../harness/command.ts'
import { enterNetwork, makeNetwork } from '../harness/network.ts'
import type { Place } from '../harness/place.ts'
import { claimPlace } from '../harness/remains/claim-place.ts'
import { removeRemains } from '../harness/remains/remains.ts'
import { buildTaprootImage } from '../harness/taproot-image.ts'
import { until } from '../../process/harness/ops.ts'
import { writeBundle } from './bundle.ts'
import type { ContainerSpec } from './container.ts'
import { ContainerNetwork } from './container-network.ts'
import { MachineImages, type StandIn } from './images.ts'

const parts = ['base-image', 'buildah', 'compose-config', 'crane', 'etcd', 'ip', 'nsenter', 'registry', 'runc'] as const
/** How long Docker waits after SIGTERM, in seconds, before it kills a container. */
const dockerGraceSeconds = 10
/** The user of the image. Docker gives a new volume the owner of the folder in the image; test/e2e/cluster/image.test.ts checks that one. */
const imageUser = 65_532
const healthyWithinMs = 120_000
const keptCharacters = 16_000

/** A container that was started. */
export interface RunningContainer {
  readonly name: string
  /** The end of its output. */
  readonly output: string
  /** Starts it again after `stop`, with its volumes. */
  start(): void
  /** Runs a command in it, as `docker exec` does. Throws if it fails. */
  exec(command: readonly string[]): Promise<string>
  /** Waits until its health check succeeds. Throws with its output if it ends before. */
  untilHealthy(healthcheck: readonly string[]): Promise<void>
  /** Stops it as `docker stop` does. Resolves to its exit code, 137 if it had to be killed. */
  stop(): Promise<number>
}

/** Like `describe`, for tests that run containers. On a machine without the requirements they are skipped, or fail with REQUIRE_ALL_PARTS=1. */
export function describeWithContainers(title: string, body: () => void): void {
  const isRoot = process.platform === 'linux' && process.getuid?.() === 0
  if (isRoot && spawnSync('unshare', ['--mount', '--net', 'true']).status === 0) describeWithParts(parts, title, body)
  else describeUnless('containers need root on Linux and the right to create namespaces', title, body)
}

/**
 * Runs containers of the image that the Dockerfile builds, by runc as Docker does. They have a network of their own, so that the ports they
 * publish on 127.0.0.1 are free.
 */
export class ContainerEngine {
  readonly #place: Place
  readonly #network: ContainerNetwork
  readonly #images: MachineImages
  readonly #forwarders: ServerProcess[] = []

  private constructor(place: Place, standIns: Readonly<Record<string, StandIn>>) {
    this.#place = place
    this.#network = new ContainerNetwork(place)
    this.#images = new MachineImages(join(place.directory, 'images'), standIns)
  }

  /** Starts an engine. `standIns` are images by name that can't be pulled. */
  static async start(standIns: Readonly<Record<string, StandIn>> = {}): Promise<ContainerEngine> {
    const image = await buildTaprootImage()
    const place = await claimPlace()
    const engine = new ContainerEngine(place, standIns)
    try {
      await makeCgroups(place.name)
      await makeNetwork(place)
      await engine.#images.load(image)
      await engine.#writeDocker()
      return engine
    } catch (error) {
      await engine.stop()
      throw error
    }
  }

  /** Starts a container and publishes its ports. */
  async run(spec: ContainerSpec): Promise<RunningContainer> {
    const folder = join(this.#place.directory, 'bundles', spec.name)
    const { address, file } = await this.#network.join(spec.name)
    const volumes = await this.#makeVolumes(spec)
    const place = { folder, cgroup: `/${this.#place.name}/${spec.name}`, networkFile: file, hostsFile: this.#network.hostsFile, volume: volumes }
    await writeBundle(spec, await this.#images.unpack(spec), place)
    await this.#publish(spec, address)
    const container = new Container(spec.name, folder, [requirePart('runc'), ...this.#runtime])
    container.start()
    return container
  }

  /**
   * Runs commands like a person at a terminal of the machine, who has crane and curl. `docker exec` runs in a container; `docker login`, `tag`,
   * `push` and `pull` are those of buildah, which has the same ones.
   */
  shell(commands: string): Promise<string> {
    const path = [join(this.#place.directory, 'bin'), dirname(requirePart('crane')), process.env['PATH'] ?? ''].join(delimiter)
    const [nsenter = '', ...entry] = enterNetwork(this.#place)
    const env = { ...process.env, PATH: path, HOME: this.#place.directory, REGISTRY_AUTH_FILE: join(this.#place.directory, 'auth.json') }
    return run(nsenter, [...entry, 'bash', '-euo', 'pipefail', '-c', commands], { cwd: this.#place.directory, env })
  }

  /** Ends every container and removes all files. */
  async stop(): Promise<void> {
    await Promise.all(this.#forwarders.map((forwarder) => forwarder.kill()))
    await removeRemains(this.#place)
  }

  get #runtime(): string[] {
    return ['--root', join(this.#place.directory, 'runc')]
  }

  async #makeVolumes({ mounts }: ContainerSpec): Promise<(name: string) => string> {
    const folderOf = (name: string): string => join(this.#place.directory, 'volumes', name)
    for (const mount of mounts) {
      if (mount.kind !== 'volume') continue
      await mkdir(folderOf(mount.volume), { recursive: true })
      await chown(folderOf(mount.volume), imageUser, imageUser)
    }
    return folderOf
  }

  async #publish({ name, published }: ContainerSpec, container: string): Promise<void> {
    if (published.length === 0) return
    const rules = published.map(({ address, port, target }) => `${address}:${port}:${target}`)
    const program = join(import.meta.dirname, 'forward-ports.ts')
    const command = [...enterNetwork(this.#place), process.execPath, program, container, ...rules]
    const isReady = (): Promise<boolean> => Promise.resolve(forwarder.output.split('listening').length > rules.length)
    const forwarder: ServerProcess = new ServerProcess({ name: `the ports of ${name}`, command, isReady })
    this.#forwarders.push(forwarder)
    await forwarder.start()
  }

  async #writeDocker(): Promise<void> {
    const file = join(this.#place.directory, 'bin', 'docker')
    const runc = [requirePart('runc'), ...this.#runtime].join(' ')
    const buildah = (await this.#images.buildah()).join(' ')
    const script = `#!/bin/sh
set -eu
if [ "$1" = compose ]; then shift; fi
case "$1" in
  exec) exec ${runc} "$@" ;;
  login | push | pull) command="$1"; shift; exec ${buildah} "$command" --tls-verify=false "$@" ;;
  tag | rmi) exec ${buildah} "$@" ;;
  *) echo "docker $1 is unknown" >&2; exit 1 ;;
esac
`
    await mkdir(dirname(file))
    await writeFile(file, script)
    await chmod(file, 0o755)
  }
}

/** A container that runs in the foreground of a runc, which ends with its exit code. */
class Container implements RunningContainer {
  readonly name: string
  output = ''
  readonly #bundle: string
  readonly #runtime: readonly [string, ...string[]]
  #child: ChildProcess | undefined

  constructor(name: string, bundle: string, runtime: readonly [string, ...string[]]) {
    this.name = name
    this.#bundle = bundle
    this.#runtime = runtime
  }

  start(): void {
    const [runc, ...flags] = this.#runtime
    const child = spawn(runc, [...flags, 'run', '--bundle', this.#bundle, this.name], { stdio: ['ignore', 'pipe', 'pipe'] })
    const keep = (chunk: unknown): void => void (this.output = (this.output + String(chunk)).slice(-keptCharacters))
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    this.#child = child
  }

  #runc(...args: string[]): Promise<string> {
    const [runc, ...flags] = this.#runtime
    return run(runc, [...flags, ...args])
  }

  exec(command: readonly string[]): Promise<string> {
    return this.#runc('exec', this.name, ...command)
  }

  async untilHealthy(healthcheck: readonly string[]): Promise<void> {
    const isHealthy = async (): Promise<boolean> => {
      const code = this.#child?.exitCode ?? null
      if (code !== null) throw new Error(`${this.name} ended with ${code}:\n${this.output}`)
      return this.exec(healthcheck).then(
        () => true,
        () => false,
      )
    }
    await until(isHealthy, healthyWithinMs).catch((error: unknown) => {
      throw new Error(`${this.name} is not healthy:\n${this.output}`, { cause: error })
    })
  }

  async stop(): Promise<number> {
    if (this.#child === undefined) throw new Error(`${this.name} was not started`)
    const exited = once(this.#child, 'exit')
    await this.#runc('kill', this.name, 'SIGTERM')
    const killing = setTimeout(() => void this.#runc('kill', this.name, 'SIGKILL').catch(() => undefined), dockerGraceSeconds * 1000)
    const [code] = (await exited) as [number | null] // a cast of the event's arguments
    clearTimeout(killing)
    return code ?? -1
  }
}
