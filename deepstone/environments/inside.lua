-- Runs inside a probed LuaJIT: luajit inside.lua RESULT_FILE PACKAGE PART LIBRARIES. Requires the framework and that part
-- of it, lists the shared libraries that are then loaded, and writes the result to a file, since frameworks print.

package.path = package.path .. ';' .. arg[0]:gsub('/?deepstone/environments/[^/]*$', '') .. '/?.lua'

local json = require 'deepstone.worker.json'
local system = require 'deepstone.worker.system'

local target, framework, part, with_libraries = unpack(arg)
local versions, failures, folders = {}, {}, {}

for _, name in ipairs {framework, part} do
   local found, module = pcall(require, name)
   if name ~= '' and found then
      local version = type(module) == 'table' and rawget(module, '_VERSION')
      versions[name] = type(version) == 'string' and version or ''
      local path = package.searchpath(name, package.path)
      folders[name] = path and path:match('^(.*)/')
   elseif name ~= '' then
      failures[name] = tostring(module)
   end
end

local file = assert(io.open(target, 'w'))
file:write(json.encode {
   program = jit.version,
   versions = versions,
   failures = failures,
   distributions = {},
   libraries = json.array(with_libraries ~= '' and system.libraries() or {}),
   folders = folders,
})
file:close()
