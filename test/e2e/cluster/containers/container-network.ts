import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import { run } from '../harness/command.ts'
import type { Place } from '../harness/place.ts'

/**
 * The network of containers, as Docker's bridge is: each has a network namespace and an address of its own, and finds the others by name. The
 * namespace of the place is their machine. Nothing leaves it.
 */
export class ContainerNetwork {
  readonly #place: Place
  readonly #addresses = new Map<string, string>()
  /** What containers mount as /etc/hosts. */
  readonly hostsFile: string

  constructor(place: Place) {
    this.#place = place
    this.hostsFile = join(place.directory, 'hosts')
  }

  /** Gives a container a namespace and an address. Resolves to the address and to the file of the namespace. */
  async join(name: string): Promise<{ address: string; file: string }> {
    const { name: machine, nodeAddress, podRange, directory } = this.#place
    const index = this.#addresses.size + 1
    const address = podRange.replace(/\.\d+\/\d+$/, `.${index}`)
    const folder = join(directory, 'networks')
    await mkdir(folder, { recursive: true })
    const file = join(folder, name)
    await writeFile(file, '')
    await run('unshare', [`--net=${file}`, 'true'])
    const onMachine = (...args: string[]): Promise<string> => run(requirePart('ip'), ['-netns', machine, ...args])
    const inside = (...args: string[]): Promise<string> => run(requirePart('nsenter'), [`--net=${file}`, '--', requirePart('ip'), ...args])
    const link = `container-${index}`
    await onMachine('link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', file)
    await onMachine('link', 'set', link, 'up')
    await inside('link', 'set', 'lo', 'up')
    await inside('address', 'add', `${address}/32`, 'dev', 'eth0')
    await inside('link', 'set', 'eth0', 'up')
    await inside('route', 'add', 'default', 'via', nodeAddress, 'dev', 'eth0', 'onlink')
    await onMachine('route', 'add', address, 'dev', link)
    this.#addresses.set(name, address)
    const lines = [...this.#addresses].map(([host, at]) => `${at} ${host}`)
    await writeFile(this.hostsFile, ['127.0.0.1 localhost', ...lines, ''].join('\n'))
    return { address, file }
  }
}
