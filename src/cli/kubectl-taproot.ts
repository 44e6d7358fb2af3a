import { enableCompileCache } from 'node:module'

// Imported after this call, so that compiled code is cached for the next start.
enableCompileCache()
const { kubectlPlugin } = await import('./kubectl-plugin.ts')
await kubectlPlugin(process.argv)
