import { enableCompileCache } from 'node:module'

// The command's modules are loaded after this, so that a second start finds them compiled.
enableCompileCache()
const { kubectlPlugin } = await import('./kubectl-plugin.ts')
await kubectlPlugin(process.argv)
