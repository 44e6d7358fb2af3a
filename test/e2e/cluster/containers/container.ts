/** A container as Docker would run it. */
export interface ContainerSpec {
  readonly name: string
  readonly image: string
  /** Replaces the command of the image; its entry point stays. */
  readonly command: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly readOnly: boolean
  readonly mounts: readonly ContainerMount[]
  readonly dropsCapabilities: boolean
  readonly noNewPrivileges: boolean
  readonly published: readonly PublishedPort[]
}

/** A mount in a container: a tmpfs with options, a path of this machine, or a volume by name. */
export type ContainerMount =
  | { readonly kind: 'tmpfs'; readonly target: string; readonly options: readonly string[] }
  | { readonly kind: 'bind'; readonly target: string; readonly source: string; readonly readOnly: boolean }
  | { readonly kind: 'volume'; readonly target: string; readonly volume: string }

/** A port of the machine that leads to one of a container. */
export interface PublishedPort {
  readonly address: string
  readonly port: number
  readonly target: number
}
