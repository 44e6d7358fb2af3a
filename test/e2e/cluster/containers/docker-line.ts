import type { ContainerMount, ContainerSpec, PublishedPort } from './container.ts'

/**
 * Reads a `docker run` command in one line. Throws for flags that it does not know, so that no test passes without them. `--rm` says nothing
 * here: no container stays. The name of the image is the default name of the container.
 */
export function readDockerLine(line: string): ContainerSpec {
  const words = line.trim().split(/\s+/)
  if (words[0] !== 'docker' || words[1] !== 'run') throw new Error(`no docker run: ${line}`)
  const flags = new DockerFlags()
  let at = 2
  for (; words[at]?.startsWith('-') === true; at += 1) if (flags.take(words[at] ?? '', words[at + 1])) at += 1
  const [image, ...command] = words.slice(at)
  if (image === undefined) throw new Error(`no image: ${line}`)
  return flags.specOf(image, command)
}

class DockerFlags {
  readonly #env: Record<string, string> = {}
  readonly #mounts: ContainerMount[] = []
  readonly #published: PublishedPort[] = []
  #name: string | undefined
  #readOnly = false

  /** Returns whether the flag took its value. */
  take(flag: string, value: string | undefined): boolean {
    if (flag === '--rm') return false
    if (flag === '--read-only') {
      this.#readOnly = true
      return false
    }
    if (value === undefined) throw new Error(`${flag} has no value`)
    this.#takeValue(flag, value)
    return true
  }

  #takeValue(flag: string, value: string): void {
    if (flag === '--name') this.#name = value
    else if (flag === '--env') this.#env[cut(value, '=')[0]] = cut(value, '=')[1]
    else if (flag === '--publish') this.#published.push(publishedPort(value))
    else if (flag === '--tmpfs') this.#mounts.push({ kind: 'tmpfs', target: cut(value, ':')[0], options: cut(value, ':')[1].split(',') })
    else throw new Error(`docker run has an unknown flag: ${flag}`)
  }

  specOf(image: string, command: readonly string[]): ContainerSpec {
    const given = { env: this.#env, readOnly: this.#readOnly, mounts: this.#mounts, published: this.#published }
    return { name: this.#name ?? image, image, command, dropsCapabilities: false, noNewPrivileges: false, ...given }
  }
}

function publishedPort(value: string): PublishedPort {
  const match = /^(\d+\.\d+\.\d+\.\d+):(\d+):(\d+)$/.exec(value)
  if (match === null) throw new Error(`--publish has to be address:port:port: ${value}`)
  return { address: match[1] ?? '', port: Number(match[2]), target: Number(match[3]) }
}

function cut(text: string, at: string): [string, string] {
  const position = text.indexOf(at)
  return position < 0 ? [text, ''] : [text.slice(0, position), text.slice(position + at.length)]
}
